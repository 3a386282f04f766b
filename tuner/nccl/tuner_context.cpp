#include "tuner/nccl/tuner_context.hpp"

#include <fcntl.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tuner/nccl/communicator_link.hpp"
#include "tuner/transport/transport.hpp"

namespace dynamiccl::nccl_tuner {
namespace {

constexpr std::size_t kMostFileBytes = std::size_t{4} << 20;
constexpr std::int64_t kPatienceSeconds = 30;

void say(Logger log, int level, const std::string& text) {
  if (log != nullptr) log(level, kTuning, __FILE__, __LINE__, "DynamICCL: %s", text.c_str());
}

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

std::string read_file(const char* path, std::string& problem) {
  std::string text;
  // A pipe without a writer must not hold up a job: opened without waiting, and only files are
  // read.
  const int descriptor = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat status {};
  const bool is_file =
      descriptor >= 0 && fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  std::FILE* file = is_file ? fdopen(descriptor, "r") : nullptr;
  if (file == nullptr) {
    problem = descriptor >= 0 && !is_file ? "it is no regular file" : std::strerror(errno);
    if (descriptor >= 0) ::close(descriptor);
    return text;
  }
  std::array<char, 4096> part{};
  for (std::size_t n = 0;
       text.size() < kMostFileBytes && (n = std::fread(part.data(), 1, part.size(), file)) > 0;)
    text.append(part.data(), n);
  std::fclose(file);
  return text;
}

/// Whether every connection of a communicator goes through the shared folder: NCCL was offered that
/// network, nobody asked for another, and each rank is a host of its own to it.
bool all_through_folder(std::size_t ranks, std::size_t nodes) {
  const char* net = variable("NCCL_NET");
  return ranks > 1 && nodes == ranks && transport::Transport::instance().offered() &&
         (net == nullptr || strcasecmp(net, "DynamICCL") == 0);
}

/// All default where there is no file or no whole one, but for the folder's own.
CallTable load_table(std::size_t ranks, std::size_t nodes, Logger log) {
  const char* path = variable("DYNAMICCL_TUNER_TABLE");
  if (path == nullptr && all_through_folder(ranks, nodes)) {
    say(log, kInfo, "channels capped for messages below 32 MiB, as all go through the folder");
    return shared_folder_caps();
  }
  if (path == nullptr) return {};
  std::string problem;
  const std::string text = read_file(path, problem);
  const std::vector<CallRow> rows =
      problem.empty() ? rows_from_text(text, problem) : std::vector<CallRow>{};
  if (!problem.empty()) {
    say(log, kWarn,
        std::string("table ") + path + " is not used: " + problem +
            "; NCCL's own choices stay. Export it again, the same for all ranks.");
    return {};
  }
  say(log, kInfo,
      "table " + std::string(path) + ", " + std::to_string(rows.size()) + " rows, for " +
          std::to_string(ranks) + " ranks on " + std::to_string(nodes) + " nodes");
  return table_for(rows, static_cast<unsigned>(ranks), static_cast<unsigned>(nodes));
}

std::int64_t number(const char* name, std::int64_t otherwise) {
  const char* text = variable(name);
  const long long value = text == nullptr ? 0 : std::strtoll(text, nullptr, 10);
  return value > 0 ? value : otherwise;
}

}  // namespace

std::unique_ptr<Context> make_context(std::uint64_t communicator, std::size_t ranks,
                                      std::size_t nodes, Logger log) {
  OfferedLink offered = take_link();
  if (communicator == 0) communicator = offered.communicator;
  auto context = std::make_unique<Context>();
  context->log = log;
  const CallTable table = load_table(ranks, nodes, log);
  const char* folder = variable("DYNAMICCL_TUNER_FOLDER");
  if (folder != nullptr && communicator != 0) {
    std::string problem;
    const Region::Spec spec{communicator, static_cast<unsigned>(ranks),
                            static_cast<unsigned>(nodes), number("DYNAMICCL_TUNER_HOSTS", 1) > 1,
                            &table};
    std::shared_ptr<Region> region = Region::open_or_make(folder, spec, problem);
    if (region != nullptr) {
      context->member = std::make_shared<Member>(
          std::move(region), number("DYNAMICCL_TUNER_PATIENCE", kPatienceSeconds) * 1'000'000'000);
      if (!context->member->shared()) {
        problem = "more processes than ranks use " + Region::path_of(folder, communicator);
        context->member.reset();
      }
    }
    // The others wait for this rank's word in vain: all ranks keep NCCL's choices.
    if (context->member == nullptr) {
      say(log, kWarn, "no agreement, NCCL's own choices stay: " + problem);
      context->member = std::make_shared<Member>(CallTable{});
    }
  } else {
    context->member = std::make_shared<Member>(table);
  }
  if (offered.link != nullptr) {
    offered.link->set(context->member);
    context->stream = offered.link->stream();
  }
  return context;
}

bool apply(CallCell cell, float* costs, int algorithms, int protocols, int* channels) noexcept {
  if (cell.algorithm != CallCell::kAny || cell.protocol != CallCell::kAny) {
    float* best = nullptr;
    for (int a = 0; a < algorithms; ++a) {
      if (cell.algorithm != CallCell::kAny && a != cell.algorithm) continue;
      for (int p = 0; p < protocols; ++p) {
        if (cell.protocol != CallCell::kAny && p != cell.protocol) continue;
        float* cost = costs + static_cast<std::ptrdiff_t>(a) * protocols + p;
        // Below zero: ruled out; obeying a write there hangs the job.
        if (*cost >= 0.0F && (best == nullptr || *cost < *best)) best = cost;
      }
    }
    if (best == nullptr) return false;
    *best = 0.0F;
  }
  if (cell.channels != 0 && channels != nullptr) *channels = cell.channels;
  return true;
}

}  // namespace dynamiccl::nccl_tuner
