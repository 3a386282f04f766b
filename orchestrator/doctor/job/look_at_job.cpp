#include "orchestrator/doctor/job/look_at_job.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/job/call_sizes.hpp"
#include "orchestrator/doctor/job/find_ranks.hpp"
#include "orchestrator/doctor/job/gpu_use.hpp"
#include "orchestrator/doctor/job/process_files.hpp"
#include "orchestrator/doctor/job/ras_port.hpp"
#include "orchestrator/doctor/job/stacks.hpp"

namespace dynamiccl {
namespace {

using Clock = std::chrono::steady_clock;

// The job has this long for itself between two looks, however long one takes.
constexpr double kLeastPause = 0.2;
constexpr int kLooksBeforeCalls = 3;

/// Of a core that ended children of this process have used.
double children_cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

bool has_rdma_devices() {
  std::error_code none;
  return std::filesystem::directory_iterator("/sys/class/infiniband", none) !=
         std::filesystem::directory_iterator();
}

const char* name_of_state(JobState state) {
  switch (state) {
    case JobState::running:
      return "running";
    case JobState::waiting:
      return "waiting";
    case JobState::slow:
      return "slow";
    case JobState::hung:
      return "hung";
    case JobState::unknown:
      break;
  }
  return "unknown";
}

/// One look at every rank, at all of them at once; a stopped one's stack would say no more.
void look_once(LiveJob& job, const StackReader& stacks, Clock::time_point begun) {
  const auto processes = all_processes();
  const auto look_at = [&](LiveRank& rank) {
    RankLook look = look_at_process(rank.pid, processes);
    look.at_s = std::chrono::duration<double>(Clock::now() - begun).count();
    if (look.state == '?' || look.state == 'Z') return;
    if (!stacks.problem().empty())
      rank.stack_problem = stacks.problem();
    else if (look.state != 'T' && look.state != 't')
      look.stack = stacks.look(rank.pid, rank.on_gpu, rank.stack_problem);
    rank.looks.push_back(std::move(look));
  };
  std::vector<std::future<void>> looks;
  for (auto& rank : job.ranks)
    looks.push_back(std::async(std::launch::async, [&] { look_at(rank); }));
  for (auto& look : looks) look.get();
  for (const auto& rank : job.ranks)
    if (!rank.looks.empty()) job.seconds = std::max(job.seconds, rank.looks.back().at_s);
}

/// Asks NCCL's RAS while the looks go on, which do not wait for it.
class RasWatch {
 public:
  explicit RasWatch(const LiveJob& job) : targets_(ras_targets(job)) {}
  ~RasWatch() { over_ = true; }
  RasWatch(const RasWatch&) = delete;
  RasWatch& operator=(const RasWatch&) = delete;

  /// A stopped rank would be asked in vain, and says enough by itself.
  void ask(const LiveJob& job) {
    const bool stopped = std::any_of(job.ranks.begin(), job.ranks.end(), [](const LiveRank& rank) {
      return !rank.looks.empty() && rank.looks.back().state == 'T';
    });
    if (targets_.empty() || stopped || asked_.valid()) return;
    asked_ = std::async(std::launch::async,
                        [this] { return ask_ras(targets_, [this] { return over_.load(); }); });
  }

  /// What has been answered, into the last looks.
  void take_into(LiveJob& job) {
    if (asked_.valid() && asked_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
      take_ras(job, asked_.get());
  }

 private:
  std::vector<RasTarget> targets_;
  std::atomic<bool> over_ = false;
  std::future<RasLook> asked_;  // the last, so that it ends before what it uses
};

/// Ranks that have come to their end meanwhile are no longer here.
void drop_ended(LiveJob& job) {
  const auto processes = all_processes();
  const auto is_over = [&](const LiveRank& rank) {
    return std::none_of(processes.begin(), processes.end(), [&](const ProcessStat& one) {
      return one.pid == rank.pid && one.state != 'Z' && one.state != 'X';
    });
  };
  std::erase_if(job.ranks, is_over);
}

}  // namespace

JobLook look_at_job(const std::vector<std::string>& named, const LookOptions& options) {
  JobLook look;
  try {
    look.job = find_ranks(named, options.of_several);
  } catch (const NoRankHere& none) {
    if (!options.of_several) throw;
    look.job.ended = none.ended;
    look.job.partly = !none.sure;
    look.verdict = {JobState::unknown, "unseen", {}, none.what(), {}, {}};
    return look;
  }
  look.job.has_rdma = has_rdma_devices();
  const StackReader stacks;
  const auto begun = Clock::now();
  const double cpu_before = children_cpu_s();
  for (auto& rank : look.job.ranks) {
    read_surroundings(rank);
    look.by_gdb = look.by_gdb || stacks.takes_long(rank.pid);
  }
  RasWatch ras(look.job);
  std::optional<GpuUse> gpus;
  if (std::any_of(look.job.ranks.begin(), look.job.ranks.end(),
                  [](auto& one) { return one.on_gpu; }))
    gpus.emplace();
  const auto so_far = [&] { return std::chrono::duration<double>(Clock::now() - begun).count(); };
  for (double before = 0;; before = so_far()) {
    ras.ask(look.job);
    look_once(look.job, stacks, begun);
    ++look.stacks;
    drop_ended(look.job);
    ras.take_into(look.job);
    if (gpus) gpus->read(look.job);
    for (auto& rank : look.job.ranks) rank.sockets = stuck_sockets(rank.pid);
    look.verdict = verdict(look.job);
    const bool time_for_hangs =
        look.verdict.id == "stopped" ? look.stacks > 1 : so_far() >= options.hung_seconds;
    const bool interrupted = options.interrupted && options.interrupted();
    if ((time_for_hangs && is_settled(look.verdict, look.job)) || interrupted) break;
    // Another look would take as long as this one.
    const double pause = std::max(options.pause_seconds - (so_far() - before), kLeastPause);
    if (2 * so_far() - before + pause > options.seconds) break;
    const auto next = Clock::now() + std::chrono::duration<double>(pause);
    // By now it is known which calls there are.
    if (look.stacks == kLooksBeforeCalls)
      look.job.calls_problem = watch_calls(look.job.ranks, pause);
    std::this_thread::sleep_until(next);
  }
  look.verdict = verdict(look.job);
  look.stack_cpu_s = children_cpu_s() - cpu_before;
  look.remarks = remarks(look.job);
  return look;
}

std::string to_text(const JobVerdict& said) {
  std::string text = fmt::format("{} ({}): {}\n", name_of_state(said.state), said.id, said.says);
  for (const auto& line : said.evidence) text += "  " + line + "\n";
  for (const auto& line : said.next) text += "  next: " + line + "\n";
  return text;
}

nlohmann::json to_json(const JobVerdict& said) {
  return {{"state", name_of_state(said.state)},
          {"verdict", said.id},
          {"ranks", said.ranks},
          {"says", said.says},
          {"evidence", said.evidence},
          {"next", said.next}};
}

std::string to_text(const std::vector<JobRemark>& remarks) {
  std::string text;
  for (const auto& remark : remarks) {
    text += fmt::format("  NOTE {}: {}\n", remark.id, remark.says);
    text += fmt::format("    fix: {}\n", remark.fix);
  }
  return text;
}

nlohmann::json to_json(const std::vector<JobRemark>& remarks) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& remark : remarks)
    list.push_back({{"id", remark.id}, {"says", remark.says}, {"fix", remark.fix}});
  return list;
}

std::string to_text(const JobLook& look) {
  std::string text = to_text(look.verdict) + to_text(look.remarks);
  for (const auto& line : lines_of_calls(look.job.ranks)) text += "  calls: " + line + "\n";
  if (!look.job.calls_problem.empty()) text += "  not seen: " + look.job.calls_problem + "\n";
  text += fmt::format(
      "  seen: {}{}, for {:.1f} s; {}, which took {:.1f} % of a core\n",
      counted(look.job.ranks.size(), "rank"),
      look.job.world > 0 ? fmt::format(" of {}", look.job.world) : "", look.job.seconds,
      counted(look.stacks, "look") + " at each",
      100 * look.stack_cpu_s / std::max(look.job.seconds, 0.1),
      look.by_gdb ? "; gdb took stacks, and a rank stands for a second or two at each" : "");
  return text;
}

nlohmann::json to_json(const JobLook& look) {
  auto object = to_json(look.verdict);
  object.update({{"world", look.job.world},
                 {"seconds", look.job.seconds},
                 {"looks", look.stacks},
                 {"core_seconds", look.stack_cpu_s},
                 {"calls_problem", look.job.calls_problem},
                 {"remarks", to_json(look.remarks)},
                 {"processes", nlohmann::json::array()}});
  for (const auto& rank : look.job.ranks) {
    nlohmann::json libraries = nlohmann::json::array();
    for (const auto& library : rank.libraries)
      libraries.push_back(
          {{"name", library.name}, {"path", library.path}, {"build_id", library.build_id}});
    nlohmann::json calls = nlohmann::json::array();
    for (const auto& call : rank.calls)
      calls.push_back({{"call", call.name},
                       {"bytes", call.bytes},
                       {"times", call.times},
                       {"seconds", call.seconds}});
    object["processes"].push_back({{"rank", rank.rank},
                                   {"pid", rank.pid},
                                   {"program", rank.program},
                                   {"calls", std::move(calls)},
                                   {"libraries", std::move(libraries)}});
  }
  return object;
}

}  // namespace dynamiccl
