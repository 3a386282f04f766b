#include "plugin/tuner/tuner_context.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "plugin/tuner/communicator_link.hpp"
#include "plugin/tuner/rank_facts.hpp"

namespace dynamiccl::nccl_tuner {
namespace {

constexpr std::size_t kMostFileBytes = std::size_t{4} << 20;

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

/// Says it once per process: every communicator of a job comes to the same answer.
void say_once(Logger log, int level, const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> said;
  constexpr std::size_t kMostSaid = 64;
  const std::lock_guard lock(mutex);
  if (said.size() < kMostSaid && said.insert(text).second) say(log, level, text);
}

std::string count_of(unsigned count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string place_text(unsigned ranks, unsigned nodes) {
  if (nodes == 0) return count_of(ranks, "rank");
  if (ranks == 0) return count_of(nodes, "node");
  return count_of(ranks, "rank") + " on " + count_of(nodes, "node");
}

/// For which ranks and nodes it was made: "2 ranks on 1 node, 4 ranks on 2 nodes".
std::string places_of(const std::vector<CallRow>& rows) {
  std::set<std::pair<unsigned, unsigned>> places;
  for (const CallRow& row : rows) places.emplace(row.ranks, row.nodes);
  std::string text;
  for (const auto& [ranks, nodes] : places)
    text += (text.empty() ? "" : ", ") + place_text(ranks, nodes);
  return text;
}

std::vector<CallRow> rows_for(const std::vector<CallRow>& rows, unsigned ranks, unsigned nodes) {
  std::vector<CallRow> fitting;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(fitting), [&](const CallRow& row) {
    return (row.ranks == 0 || row.ranks == ranks) && (row.nodes == 0 || row.nodes == nodes);
  });
  return fitting;
}

/// Why none of the table counts for this communicator; "": it does. What is asked for here is the
/// same on all of its ranks, as one that decided otherwise than the rest would hang the job.
std::string misfit(const CallTableFile& file, unsigned ranks, unsigned nodes) {
  if (!file.rows.empty() && rows_for(file.rows, ranks, nodes).empty())
    return "it was made for " + places_of(file.rows) + ", this communicator has " +
           place_text(ranks, nodes);
  // NCCL itself ends jobs of several versions.
  const std::string here = nccl_release(loaded_nccl_version());
  if (!here.empty() && !file.origin.nccl.empty() && here != file.origin.nccl)
    return "it was made with NCCL " + file.origin.nccl + ", this is " + here +
           " (`dynamiccl tune --recheck` says whether it still helps)";
  return "";
}

struct Loaded {
  CallTable table;
  std::vector<CallCost> costs;
};

/// All default where there is no file, no whole one or none for here.
Loaded load_table(std::size_t all_ranks, std::size_t all_nodes, Logger log) {
  const auto ranks = static_cast<unsigned>(all_ranks);
  const auto nodes = static_cast<unsigned>(all_nodes);
  const char* path = variable("DYNAMICCL_TUNER_TABLE");
  if (path == nullptr) return {};
  std::string problem;
  const std::string text = read_file(path, problem);
  const CallTableFile file =
      problem.empty() ? call_table_from_text(text, problem) : CallTableFile{};
  if (!problem.empty()) {
    say(log, kWarn,
        std::string("table ") + path + " is not used: " + problem +
            "; NCCL's own choices stay. Export it again, the same for all ranks.");
    return {};
  }
  // A job's groups of other sizes are no news where its largest one has what it was made for.
  static std::atomic<bool> used{false};
  if (const std::string why = misfit(file, ranks, nodes); !why.empty()) {
    say_once(log, used.load() ? kInfo : kWarn,
             std::string("table ") + path + " is not used: " + why + "; NCCL's own choices stay.");
    return {};
  }
  used.store(true);
  const std::string gpu = gpu_model();
  // Ranks may have different GPUs: none may leave the table alone for that.
  if (!gpu.empty() && !file.origin.gpu.empty() && gpu != file.origin.gpu)
    say_once(log, kWarn,
             std::string("table ") + path + " was made on " + file.origin.gpu + ", this is " + gpu +
                 ": it is used; `dynamiccl tune --recheck` says whether it still helps.");
  const std::vector<CallRow> rows = rows_for(file.rows, ranks, nodes);
  say(log, kInfo,
      "table " + std::string(path) + ", " + std::to_string(rows.size()) + " rows, for " +
          place_text(ranks, nodes));
  return {table_for(rows, ranks, nodes), file.origin.costs};
}

/// nullptr where nothing is known of them.
std::unique_ptr<CostCheck> check_of(const std::vector<CallCost>& costs) {
  if (costs.empty()) return nullptr;
  auto check = std::make_unique<CostCheck>();
  for (const CallCost& cost : costs) {
    check->unseen[cost.function] |= std::uint64_t{1} << cost.bin;
    check->expected[cost.function][cost.bin] = cost;
  }
  return check;
}

}  // namespace

std::unique_ptr<Context> make_context(std::uint64_t communicator, std::size_t ranks,
                                      std::size_t nodes, Logger log) {
  OfferedLink offered = take_link();
  if (communicator == 0) communicator = offered.communicator;
  auto context = std::make_unique<Context>();
  context->log = log;
  const Loaded loaded = load_table(ranks, nodes, log);
  const CallTable& table = loaded.table;
  const char* folder = variable("DYNAMICCL_TUNER_FOLDER");
  if (folder != nullptr && communicator != 0) {
    std::string problem;
    const Region::Spec spec{communicator, static_cast<unsigned>(ranks),
                            static_cast<unsigned>(nodes), &table};
    std::shared_ptr<Region> region = Region::open_or_make(folder, spec, problem);
    if (region != nullptr) {
      context->member = std::make_shared<Member>(std::move(region));
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
    // Where a leader may change the table nothing of it is held back.
    context->check = check_of(loaded.costs);
  }
  if (offered.link != nullptr) {
    offered.link->set(context->member);
    context->stream = offered.link->stream();
  }
  return context;
}

void check_costs(Context& context, std::size_t function, std::size_t bin, const float* costs,
                 int algorithms, int protocols) noexcept {
  // Sizes of one bin differ by two, and so may their costs.
  constexpr float kSame = 4.0F;
  const std::uint64_t bit = std::uint64_t{1} << bin;
  if ((context.check->unseen[function] & bit) == 0) return;
  context.check->unseen[function] &= ~bit;
  const CallCost made = context.check->expected[function][bin];
  if (made.algorithm >= algorithms || made.protocol >= protocols) return;
  const float here = costs[static_cast<std::ptrdiff_t>(made.algorithm) * protocols + made.protocol];
  if (here >= made.us / kSame && here <= made.us * kSame) return;
  context.refused = true;
  context.check.reset();
  if (context.log == nullptr) return;
  try {
    const std::string choice = std::string(kCallAlgorithmNames[made.algorithm]) + "/" +
                               std::string(kCallProtocolNames[made.protocol]);
    std::array<char, 160> text{};
    std::snprintf(text.data(), text.size(),
                  here < 0
                      ? "%s is ruled out here for %s of 2^%zu bytes; where it was made it took "
                        "%.3g us"
                      : "NCCL expects %s of %s of 2^%zu bytes to take %.3g us where it was made",
                  choice.c_str(), kCallFunctionNames[function].data(), bin, double{made.us});
    std::string end;
    if (here >= 0) {
      std::array<char, 32> us{};
      std::snprintf(us.data(), us.size(), ", and %.3g us here", double{here});
      end = us.data();
    }
    say_once(context.log, kWarn,
             std::string("the table is not used: ") + text.data() + end +
                 ": other links, GPUs or launch settings. NCCL's own choices stay; "
                 "`dynamiccl tune -- COMMAND` makes a table for here.");
  } catch (const std::exception&) {
    // Out of memory: refused without a word.
  }
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
