#include "orchestrator/doctor/job/look_at_job.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/job/call_watch.hpp"
#include "orchestrator/doctor/job/find_ranks.hpp"
#include "orchestrator/doctor/job/process_files.hpp"
#include "orchestrator/doctor/job/stacks.hpp"

namespace dynamiccl {
namespace {

using Clock = std::chrono::steady_clock;

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

/// One look at every rank; a stopped one's stack would say no more.
void look_once(LiveJob& job, const StackReader& stacks, Clock::time_point begun) {
  const auto processes = all_processes();
  for (auto& rank : job.ranks) {
    RankLook look = look_at_process(rank.pid, processes);
    look.at_s = std::chrono::duration<double>(Clock::now() - begun).count();
    if (look.state == '?' || look.state == 'Z') continue;
    if (!stacks.problem().empty())
      rank.stack_problem = stacks.problem();
    else if (look.state != 'T' && look.state != 't')
      look.stack = stacks.look(rank.pid, rank.stack_problem);
    job.seconds = std::max(job.seconds, look.at_s);
    rank.looks.push_back(std::move(look));
  }
}

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

/// Then it is known which calls there are.
bool is_in_collective(const LiveJob& job) {
  return std::any_of(job.ranks.begin(), job.ranks.end(), [](const LiveRank& rank) {
    return std::any_of(rank.looks.begin(), rank.looks.end(), [](const RankLook& look) {
      return look.stack.kind == CallKind::collective;
    });
  });
}

/// Counts the ranks' time in calls meanwhile, in parts that are much shorter, where it can.
void pause(std::optional<CallWatch>& calls, double seconds, std::vector<LiveRank>& ranks) {
  constexpr double kSlice = 0.2;
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  while (calls && calls->problem().empty() &&
         until - Clock::now() > std::chrono::duration<double>(kSlice / 2))
    calls->watch(kSlice, ranks);
  std::this_thread::sleep_until(until);
}

}  // namespace

JobLook look_at_job(const std::vector<std::string>& named, const LookOptions& options) {
  JobLook look;
  look.job = find_ranks(named);
  look.job.has_rdma = has_rdma_devices();
  const StackReader stacks;
  std::optional<CallWatch> calls;
  const auto begun = Clock::now();
  const double cpu_before = children_cpu_s();
  for (auto& rank : look.job.ranks) {
    read_surroundings(rank);
    look.by_gdb = look.by_gdb || stacks.takes_long(rank.pid);
  }
  for (double before = 0;;) {
    look_once(look.job, stacks, begun);
    ++look.stacks;
    drop_ended(look.job);
    for (auto& rank : look.job.ranks) rank.sockets = stuck_sockets(rank.pid);
    const double so_far = std::chrono::duration<double>(Clock::now() - begun).count();
    look.verdict = verdict(look.job);
    const bool time_for_hangs =
        look.verdict.id == "stopped" ? look.stacks > 1 : so_far >= options.hung_seconds;
    // Another look would take as long as this one.
    const bool is_last = so_far + options.pause_seconds + (so_far - before) > options.seconds;
    before = so_far + options.pause_seconds;
    const bool interrupted = options.interrupted && options.interrupted();
    if ((time_for_hangs && is_settled(look.verdict, look.job)) || interrupted) break;
    if (!calls && look.stacks > 1 && is_in_collective(look.job)) {
      calls.emplace(look.job.ranks);
      look.job.uncounted = calls->problem();
    }
    pause(calls, is_last ? options.seconds - so_far : options.pause_seconds, look.job.ranks);
    if (is_last) break;
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

std::string to_text(const JobLook& look) {
  std::string text = to_text(look.verdict);
  for (const auto& remark : look.remarks) {
    text += fmt::format("  NOTE {}: {}\n", remark.id, remark.says);
    text += fmt::format("    fix: {}\n", remark.fix);
  }
  if (!look.job.uncounted.empty()) text += "  not seen: " + look.job.uncounted + "\n";
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
                 {"not_counted", look.job.uncounted},
                 {"remarks", nlohmann::json::array()},
                 {"processes", nlohmann::json::array()}});
  for (const auto& remark : look.remarks)
    object["remarks"].push_back({{"id", remark.id}, {"says", remark.says}, {"fix", remark.fix}});
  for (const auto& rank : look.job.ranks) {
    nlohmann::json libraries = nlohmann::json::array();
    for (const auto& library : rank.libraries)
      libraries.push_back(
          {{"name", library.name}, {"path", library.path}, {"build_id", library.build_id}});
    object["processes"].push_back({{"rank", rank.rank},
                                   {"pid", rank.pid},
                                   {"program", rank.program},
                                   {"libraries", std::move(libraries)}});
  }
  return object;
}

}  // namespace dynamiccl
