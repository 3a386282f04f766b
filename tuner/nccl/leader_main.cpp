// dynamiccl-leader FOLDER [--agent NAME] [--calls N] [--nvlink] [--seconds N] [--out TABLE]: learns
// the NCCL settings of jobs that run with DYNAMICCL_TUNER_FOLDER=FOLDER and the plugin as tuner and
// profiler. It may be started, stopped and killed at any time: jobs keep the last committed table.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>

#include "core/vocabulary/error.hpp"
#include "tuner/nccl/online_learner.hpp"

namespace {

using namespace dynamiccl;

std::atomic<bool> g_stop{false};

struct Arguments {
  std::string folder;
  std::string out;
  LearnerOptions learner;
  double seconds = 0;  // 0: until the jobs end or a signal comes
};

constexpr const char* kUsage =
    "usage: dynamiccl-leader FOLDER [--agent NAME] [--calls N] [--nvlink] [--seconds N] "
    "[--out TABLE]\n"
    "FOLDER is what the ranks have as DYNAMICCL_TUNER_FOLDER, on this host\n";

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool more = i + 1 < argc;
    if (word == "--nvlink")
      arguments.learner.nvlink = true;
    else if (word == "--agent" && more)
      arguments.learner.agent = argv[++i];
    else if (word == "--calls" && more)
      arguments.learner.calls_per_trial = static_cast<std::uint32_t>(std::atoi(argv[++i]));
    else if (word == "--seconds" && more)
      arguments.seconds = std::atof(argv[++i]);
    else if (word == "--out" && more)
      arguments.out = argv[++i];
    else if (!word.starts_with("-") && arguments.folder.empty())
      arguments.folder = word;
    else
      throw Error(ErrorKind::input, "\"" + word + "\" is not understood\n" + kUsage);
  }
  if (arguments.folder.empty()) throw Error(ErrorKind::input, kUsage);
  return arguments;
}

void report(const std::string& path, const OnlineLearner& learner) {
  fmt::print(stderr, "{}: {} sizes, {} rounds, {} proposals failed{}\n", path, learner.tasks(),
             learner.rounds(), learner.aborted(), learner.finished() ? ", finished" : "");
  for (const TableEntry& entry : learner.entries())
    fmt::print("{}\t{}\t{:.1f} us default\t{:.1f} us now\n", entry.key.task.text(), entry.arm,
               entry.evidence.default_us, entry.evidence.tuned_us);
}

int lead(const Arguments& arguments) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  std::map<std::string, std::unique_ptr<OnlineLearner>> learners;
  std::map<std::string, bool> done;
  while (!g_stop) {
    for (const std::string& path : regions_in(arguments.folder)) {
      if (learners.contains(path)) continue;
      std::string problem;
      std::shared_ptr<Region> region = Region::open(path, problem);
      if (region == nullptr) throw Error(ErrorKind::data, problem);
      learners[path] = std::make_unique<OnlineLearner>(std::move(region), arguments.learner);
    }
    bool all_done = !learners.empty();
    for (auto& [path, learner] : learners) {
      if (!done[path]) done[path] = !learner->step();
      all_done = all_done && done[path];
    }
    const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    if (all_done || (arguments.seconds > 0 && elapsed > arguments.seconds)) break;
    usleep(2000);
  }
  ConfigurationTable table;
  table.epoch = 1;
  table.put_regime({"online", "learnt online", nlohmann::json::object()});
  for (const auto& [path, learner] : learners) {
    report(path, *learner);
    for (TableEntry& entry : learner->entries()) table.put(std::move(entry));
  }
  if (!arguments.out.empty()) write_table(table, arguments.out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, [](int) { g_stop = true; });
  std::signal(SIGTERM, [](int) { g_stop = true; });
  try {
    return lead(parse(argc, argv));
  } catch (const dynamiccl::Error& error) {
    fmt::print(stderr, "dynamiccl-leader: {}\n", error.what());
    return error.kind() == dynamiccl::ErrorKind::input ? 2 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "dynamiccl-leader: {}\n", error.what());
    return 1;
  }
}
