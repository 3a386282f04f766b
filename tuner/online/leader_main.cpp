// dynamiccl-leader FOLDER: learns the NCCL settings of jobs that run with
// DYNAMICCL_TUNER_FOLDER=FOLDER and the plugin as tuner and profiler. It may be started, stopped
// and killed at any time: jobs keep the last committed table.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <type_traits>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/result_place.hpp"
#include "core/vocabulary/text.hpp"
#include "profiles/detect/facts.hpp"
#include "tuner/agents/agent.hpp"
#include "tuner/job/job_facts.hpp"
#include "tuner/online/job_leader.hpp"

namespace {

using namespace dynamiccl;

std::atomic<bool> g_stop{false};

struct Arguments {
  std::string folder;
  std::string out;
  std::string decisions;
  JobLeaderOptions leader;
  double seconds = 0;  // 0: until the jobs end or a signal comes
};

constexpr const char* kUsage =
    "usage: dynamiccl-leader FOLDER [options]\n"
    "FOLDER is what the ranks have as DYNAMICCL_TUNER_FOLDER, on this host\n"
    "  --agent NAME      who chooses: means (default), bandit, ppo, coordinate-descent, ...\n"
    "  --policy FILE     trained policy, with --agent ppo (the one that comes along)\n"
    "  --parallelism X   how the job is spread over its ranks, for ppo and the decisions: dp, tp, "
    "pp, 3d, ...\n"
    "  --calls N         calls of a size after which a setting neither slower nor faster is left "
    "(20)\n"
    "  --learn-cost N    percent of the job's time so far, of 1,000 steps at least, that settings\n"
    "                    which turn out slower may cost (2); 0: no limit\n"
    "  --gloo-floor FILE settings file of `dynamiccl tune search FILE`: where its rows of Gloo are "
    "of "
    "the\n"
    "                    job's place, settings whose calls take twice as long are left\n"
    "  --rounds N        settings of a size that are tried at most (the agent says)\n"
    "  --seconds N       ends after N seconds (when the job does)\n"
    "  --out FILE        configuration table with what was learnt\n"
    "  --decisions FILE  every choice, one JSON object per line (FOLDER/decisions.jsonl);\n"
    "                    `dynamiccl import FILE` stores them, /dev/null keeps none\n"
    "  --seed N          random seed of the agent (1)\n"
    "Communicators whose ranks run on several hosts keep NCCL's own choices per call;\n"
    "`dynamiccl tune -- COMMAND` finds launch settings, which hold for all hosts.\n";

template <class Number>
Number number(const std::string& option, const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool fits = error == std::errc{} && end == text.data() + text.size() && value >= Number{};
  // from_chars() knows "nan" and "inf".
  if constexpr (std::is_floating_point_v<Number>) fits = fits && std::isfinite(value);
  if (!fits)
    throw Error(ErrorKind::input,
                option + " " + text + ": a number of 0 or more is needed\n" + kUsage);
  return value;
}

std::shared_ptr<const GlooTimes> read_floor(const std::string& path) {
  GlooTimes times = gloo_times(read_table(path));
  if (times.rows.empty())
    throw Error(
        ErrorKind::input,
        path +
            ": no row of it says what Gloo took; `dynamiccl tune search FILE` writes such rows "
            "where FILE lists gloo");
  return std::make_shared<const GlooTimes>(std::move(times));
}

/// --policy where who chooses reads none.
void require_that_policy_acts(const JobLeaderOptions& leader) {
  const auto names = agent_names();
  const bool known = std::find(names.begin(), names.end(), leader.agent) != names.end();
  // Which agents there are is said where one is made.
  if (!known || leader.agent_options.policy_path.empty() || reads_policy(leader.agent)) return;
  throw Error(ErrorKind::input, "--policy does nothing here: ppo reads a policy, and " +
                                    leader.agent +
                                    " chooses; add --agent ppo, or leave --policy out");
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) throw Error(ErrorKind::input, word + " needs a value\n" + kUsage);
      return argv[++i];
    };
    if (word == "--help" || word == "-h") {
      fmt::print("{}", kUsage);
      std::exit(0);
    }
    if (word == "--agent")
      arguments.leader.agent = value();
    else if (word == "--policy")
      arguments.leader.agent_options.policy_path = value();
    else if (word == "--seed")
      arguments.leader.agent_options.seed = number<std::uint64_t>(word, value());
    else if (word == "--parallelism")
      arguments.leader.parallelism = parse_named<ParallelismMode>(value());
    else if (word == "--calls")
      arguments.leader.calls_per_trial = std::max(1U, number<std::uint32_t>(word, value()));
    else if (word == "--learn-cost")
      arguments.leader.learn_cost = number<double>(word, value()) / 100;
    else if (word == "--gloo-floor")
      arguments.leader.gloo = read_floor(value());
    else if (word == "--rounds")
      arguments.leader.most_rounds = number<int>(word, value());
    else if (word == "--seconds")
      arguments.seconds = number<double>(word, value());
    else if (word == "--out")
      arguments.out = value();
    else if (word == "--decisions")
      arguments.decisions = value();
    else if (!word.starts_with("-") && arguments.folder.empty())
      arguments.folder = word;
    else
      throw Error(ErrorKind::input, "\"" + word + "\" is not understood\n" + kUsage);
  }
  if (arguments.folder.empty()) throw Error(ErrorKind::input, kUsage);
  require_that_policy_acts(arguments.leader);
  if (!std::filesystem::is_directory(arguments.folder))
    throw Error(ErrorKind::input, arguments.folder +
                                      ": there is no such folder; make it, and give "
                                      "it to the ranks as DYNAMICCL_TUNER_FOLDER");
  if (arguments.decisions.empty()) arguments.decisions = arguments.folder + "/decisions.jsonl";
  return arguments;
}

/// A line to stderr. Who leads a job goes on where nobody takes what it says, and names of files
/// that others made steer no terminal.
void say(const std::string& line) { tell(printable(line) + "\n"); }

void report(JobLeader& leader) {
  for (const std::string& line : leader.summary()) say(line);
  for (const std::string& line : leader.problems()) say(line);
  if (const std::string why = leader.beyond_this_host(); !why.empty()) say(why);
  if (const auto& facts = leader.facts(); facts) {
    say(fmt::format("regime: {}", facts->regime.name));
    if (facts->nodes > 1)
      say(fmt::format("recorded by {} of {} ranks on {} nodes", facts->ranks,
                      leader.watch().ranks(), facts->nodes));
  }
  const Rhythm& rhythm = leader.watch().rhythm();
  if (rhythm.found())
    say(fmt::format("step: {} calls, {:.4g} ms", rhythm.pattern.size(), rhythm.step.count() / 1e3));
  else
    say(fmt::format("no step: {}", rhythm.reason));
  const LeaderCost cost = leader.cost();
  say(fmt::format(
      "leader: {:.2f} s of a core in {:.1f} s, one thread; {} choices of {:.0f} us, which "
      "each rank would have made without it",
      cost.cpu_s, cost.wall_s, cost.choices, cost.choice_us));
}

/// What was learnt, on stdout. @returns the exit code: output that nobody takes is no success
int print_rows(JobLeader& leader) {
  std::string rows;
  for (const TableEntry& entry : leader.entries())
    rows += fmt::format("{}\t{}\t{:.1f} us default\t{:.1f} us now\n", entry.key.task.text(),
                        entry.arm, entry.evidence.default_us, entry.evidence.tuned_us);
  const bool taken =
      std::fwrite(rows.data(), 1, rows.size(), stdout) == rows.size() && std::fflush(stdout) == 0;
  if (taken) return 0;
  say(fmt::format("dynamiccl-leader: what was learnt cannot be printed: {}", std::strerror(errno)));
  return 1;
}

/// Counts on from the table that is there.
std::uint64_t table_epoch(const std::string& path) {
  if (!std::filesystem::exists(path)) return 1;
  try {
    return read_table(path).epoch + 1;
  } catch (const Error&) {
    return 1;
  }
}

void write_out(const JobLeader& leader, const std::string& path) {
  // What an earlier job learnt is worth more than nothing.
  if (leader.entries().empty() && std::filesystem::exists(path)) {
    say(fmt::format("nothing was learnt: {} stays as it was", path));
    return;
  }
  ConfigurationTable table;
  table.epoch = table_epoch(path);
  if (leader.facts())
    table.put_regime(
        {leader.facts()->regime.id, leader.facts()->regime.name, leader.facts()->regime.json});
  for (TableEntry& entry : leader.entries()) table.put(std::move(entry));
  write_table(table, path);
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

bool over(Clock::time_point begin, double seconds) {
  return seconds > 0 && seconds_since(begin) > seconds;
}

/// Looks twice a second whether ranks can still come: who removes the folder before any has been
/// heard leaves nobody to wait for.
class FolderWatch {
 public:
  explicit FolderWatch(std::string folder) : folder_(std::move(folder)) {}
  /// @throws Error(environment) when the folder was there and is gone
  void look() {
    if (seconds_since(looked_) < 0.5) return;
    looked_ = Clock::now();
    // Another error than that nothing is there, say of a network's file system, passes.
    std::error_code code;
    const auto found = std::filesystem::status(folder_, code).type();
    missing_ = found == std::filesystem::file_type::not_found && seen_ ? missing_ + 1 : 0;
    if (found == std::filesystem::file_type::directory && !std::exchange(seen_, true))
      say(fmt::format("looking for ranks in {}", folder_));
    // Ranks that start anew may make it again.
    constexpr int kLooks = 5;
    if (missing_ >= kLooks)
      throw Error(ErrorKind::environment,
                  folder_ +
                      ": the folder was removed before any rank was heard in it; start the "
                      "leader again with the job");
  }

 private:
  std::string folder_;
  bool seen_ = false;
  int missing_ = 0;
  Clock::time_point looked_{};
};

int lead(Arguments arguments) {
  const auto begin = Clock::now();
  if (!arguments.out.empty()) require_place(arguments.out, "--out");
  DecisionFile decisions(arguments.decisions);
  arguments.leader.on_decision = [&](const DecisionRecord& record) { decisions.add(record); };
  arguments.leader.on_event = [&](const std::string& text) {
    say(fmt::format("{:8.3f} s: {}", seconds_since(begin), text));
  };
  // The host's facts take a while: the folder may be gone when they are there.
  FolderWatch folder(arguments.folder);
  folder.look();
  arguments.leader.host_facts = probe_facts();
  JobLeader leader(arguments.folder, arguments.leader);
  while (!g_stop && leader.step()) {
    if (!leader.leads() && !leader.watch().heard()) folder.look();
    if (over(begin, arguments.seconds)) break;
    usleep(2000);
  }
  if (!arguments.out.empty()) write_out(leader, arguments.out);
  report(leader);
  if (const std::string lost = decisions.problem(); !lost.empty()) say(lost);
  return print_rows(leader);
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  std::signal(SIGINT, [](int) { g_stop = true; });
  std::signal(SIGTERM, [](int) { g_stop = true; });
  // A file at its limit is a write that fails.
  std::signal(SIGXFSZ, SIG_IGN);
  // So is one to a reader that has left.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return lead(parse(argc, argv));
  } catch (const dynamiccl::Error& error) {
    say(fmt::format("dynamiccl-leader: {}", error.what()));
    return error.kind() == dynamiccl::ErrorKind::input || error.kind() == dynamiccl::ErrorKind::data
               ? 2
               : 1;
  } catch (const std::exception& error) {
    say(fmt::format("dynamiccl-leader: {}", error.what()));
    return 1;
  }
}
