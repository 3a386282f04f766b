#include "orchestrator/doctor/job/job_verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/job/job_summary.hpp"

namespace dynamiccl {
namespace {

// Fewer looks say nothing of a job that stands.
constexpr std::size_t kFewestLooks = 5;
// What the others may be outside of those looks, as they too come late now and then.
constexpr double kSeldom = 0.34;
// Of the time: less use of a core is none, more waiting for one is much.
constexpr double kNoCore = 0.03;
// Cores used by what stands: whoever comes late to short steps again and again uses more.
constexpr double kStill = 0.01;
// Where no rank gets its share of a core, chance keeps one outside of calls for seconds.
constexpr double kBusy = 0.4;
constexpr double kMostlyIfBusy = 0.8;
constexpr int kOftenLate = 3;  // a single evaluation may last as long as a look at a busy machine
constexpr double kMuchWaiting = 0.25;
constexpr double kComputes = 0.5;
constexpr double kFarWorse = 0.5;
constexpr double kMuchThrottled = 0.1;
constexpr std::size_t kMostLines = 16;  // of evidence of a kind

bool waits_for_others(CallKind kind) { return kind != CallKind::outside; }

std::string most_frequent(const std::vector<std::string>& words) {
  std::map<std::string, int> counts;
  std::string best;
  for (const auto& word : words)
    if (!word.empty() && (++counts[word] > counts[best] || best.empty())) best = word;
  return best;
}

/// "asleep", "in read of /data/x", "in Python code": where a look found a rank outside of calls.
std::string place_words(const RankLook& look) {
  const std::string waits = look.state == 'R' ? "" : look.kernel_call;
  if (look.stack.in_python) return "in Python code" + (waits.empty() ? "" : ", " + waits);
  if (!waits.empty() || look.stack.place.empty()) return waits;
  return "in " + look.stack.place;
}

bool same_call(const StackLook& one, const StackLook& other) {
  return one.call == other.call && one.chain == other.chain && one.memory == other.memory;
}

RankSummary summary_of(const LiveRank& rank, double seconds) {
  RankSummary sum;
  sum.rank = &rank;
  std::vector<const RankLook*> read;
  for (const auto& look : rank.looks)
    if (look.stack.read) read.push_back(&look);
  std::vector<std::string> calls, places;
  for (const auto* look : read) {
    if (waits_for_others(look->stack.kind))
      calls.push_back(look->stack.call);
    else
      places.push_back(place_words(*look));
  }
  if (!read.empty()) {
    sum.outside = static_cast<double>(places.size()) / static_cast<double>(read.size());
    sum.inside = 1 - sum.outside;
    sum.kind = read.back()->stack.kind;
  }
  sum.call = most_frequent(calls);
  sum.meanwhile = most_frequent(places);
  if (rank.looks.size() > 1 && seconds > 0) {
    const auto &first = rank.looks.front(), &last = rank.looks.back();
    sum.cpu = (last.cpu_s - first.cpu_s) / seconds;
    sum.waiting = (last.wait_s - first.wait_s) / seconds;
    const double ready = last.run_s - first.run_s + last.wait_s - first.wait_s;
    if (ready > kNoCore * seconds) sum.served = (last.run_s - first.run_s) / ready;
    sum.throttled = (last.throttled_s - first.throttled_s) / seconds;
    sum.io_bytes = last.io_bytes - first.io_bytes;
  }
  add_gpu(sum, rank.looks);
  // Where the memory is not known, what sleeps in the same place without a core has not moved, nor
  // has what launches nothing. In a loop of one call the memory may be the same in each round.
  sum.stands = read.size() >= kFewestLooks && places.empty() && !sum.launches &&
               std::all_of(read.begin(), read.end(),
                           [&](const RankLook* look) {
                             return same_call(look->stack, read.front()->stack);
                           }) &&
               (read.front()->stack.memory != 0 || sum.cpu < kStill || sum.counted);
  return sum;
}

std::vector<RankSummary> summaries_of(const LiveJob& job) {
  std::vector<RankSummary> all;
  for (const auto& rank : job.ranks) all.push_back(summary_of(rank, job.seconds));
  return all;
}

std::string percent(double part) { return fmt::format("{:.0f} %", 100 * part); }

/// "4711", of another host "4711 on node2".
std::string pid_of(const LiveRank& rank) { return std::to_string(rank.pid) + on_host(rank.host); }

/// A line of evidence on one rank.
std::string line_of(const RankSummary& one) {
  const auto& rank = *one.rank;
  const char state = rank.looks.empty() ? '?' : rank.looks.back().state;
  std::string where;
  if (one.stands)
    where = "in one and the same " + one.call;
  else if (!one.call.empty())
    where = fmt::format("in {} in {} of the looks", one.call, percent(one.inside));
  if (!one.meanwhile.empty())
    where += fmt::format("{}outside {}({})", where.empty() ? "" : ", ",
                         where.empty() ? "of calls " : "", one.meanwhile);
  auto line = fmt::format(
      "rank {} (pid {}, state {}): {}{}used {:.2f} cores, waited for one {} of the "
      "time",
      rank.rank, pid_of(rank), state, where, where.empty() ? "" : "; ", one.cpu,
      percent(std::max(one.waiting, 0.0)));
  if (one.launched > 0)
    line +=
        fmt::format("; {} launched, as NCCL's RAS counts{}", counted(one.launched, "collective"),
                    one.launches  ? ", and it goes on"
                    : one.counted ? ", and no more come"
                                  : "");
  if (one.gpu >= 0)
    line += fmt::format("; its GPU's memory in use {}, then {} of the time",
                        percent(std::max(one.gpu_halves[0], 0.0)),
                        percent(std::max(one.gpu_halves[1], 0.0)));
  return line;
}

std::vector<std::string> lines_of(const std::vector<RankSummary>& all) {
  std::vector<std::string> lines;
  for (const auto& one : all)
    if (lines.size() < kMostLines) lines.push_back(line_of(one));
  if (all.size() > kMostLines)
    lines.push_back(fmt::format("... and {} more", all.size() - kMostLines));
  return lines;
}

/// "kill -CONT 4711 4712", a line for each host.
std::vector<std::string> continuing(const std::vector<const RankSummary*>& some) {
  std::map<std::string, std::string> pids;
  for (const auto* one : some) pids[one->rank->host] += " " + std::to_string(one->rank->pid);
  std::vector<std::string> lines;
  for (const auto& [host, of_host] : pids) lines.push_back("kill -CONT" + of_host + on_host(host));
  return lines;
}

MaybeVerdict find_stopped(const std::vector<RankSummary>& all) {
  const auto in_state = [&](char state) {
    return those(all, [&](const RankSummary& one) {
      const auto& looks = one.rank->looks;
      return looks.size() > 1 && std::all_of(looks.begin(), looks.end(), [&](const RankLook& look) {
               return look.state == state;
             });
    });
  };
  if (const auto stopped = in_state('T'); !stopped.empty())
    return JobVerdict{JobState::hung,
                      "stopped",
                      numbers_of(stopped),
                      ranks_text(numbers_of(stopped)) + (stopped.size() == 1 ? " is" : " are") +
                          " stopped by a signal (SIGSTOP or SIGTSTP)",
                      {},
                      continuing(stopped)};
  if (const auto traced = in_state('t'); !traced.empty())
    return JobVerdict{JobState::hung,
                      "stopped",
                      numbers_of(traced),
                      ranks_text(numbers_of(traced)) + (traced.size() == 1 ? " is" : " are") +
                          " held by a debugger",
                      {},
                      {"continue or detach the debugger: grep TracerPid /proc/" +
                       std::to_string(traced.front()->rank->pid) + "/status" +
                       on_host(traced.front()->rank->host)}};
  return std::nullopt;
}

std::vector<int> missing_ranks(const LiveJob& job) {
  std::set<int> here;
  for (const auto& rank : job.ranks) here.insert(rank.rank);
  std::vector<int> missing;
  for (int rank = 0; rank < job.world; ++rank)
    if (!here.contains(rank)) missing.push_back(rank);
  return missing;
}

std::string end_words(const EndedProcess& ended) {
  const std::string host = on_host(ended.host);
  return ended.signal != 0
             ? fmt::format(
                   "process {}{} ({}) was ended by signal {} ({}), and its launcher has not "
                   "collected it",
                   ended.pid, host, ended.program, ended.signal, strsignal(ended.signal))
             : fmt::format(
                   "process {}{} ({}) has ended with code {}, and its launcher has not "
                   "collected it",
                   ended.pid, host, ended.program, ended.exit_code);
}

MaybeVerdict find_ended(const LiveJob& job, const std::vector<RankSummary>& all) {
  const auto missing = missing_ranks(job);
  const auto standing = those(all, [](const RankSummary& one) { return one.stands; });
  const bool known =
      job.all_here || (job.ended.size() >= missing.size() && !job.partly) ||
      std::includes(job.gone.begin(), job.gone.end(), missing.begin(), missing.end());
  if (missing.empty() || standing.empty() || !known) return std::nullopt;
  JobVerdict found{
      JobState::hung,
      "ended",
      missing,
      fmt::format("{} {} over, and {} in {}", ranks_text(missing),
                  missing.size() == 1 ? "is" : "are",
                  ranks_text(numbers_of(standing)) + (standing.size() == 1 ? " stands" : " stand"),
                  standing.front()->call),
      {},
      {"end the job; what the rank said last and `dmesg` (out of memory) tell why it "
       "ended"}};
  for (const auto& ended : job.ended)
    if (found.evidence.size() < kMostLines) found.evidence.push_back(end_words(ended));
  for (const auto& answer : job.ras)
    for (const auto& [rank, one] : answer.missing)
      if (found.evidence.size() < kMostLines)
        found.evidence.push_back(
            fmt::format("NCCL's RAS gets no answer of rank {}: {}", rank, one.where));
  return found;
}

MaybeVerdict find_unreachable(const std::vector<RankSummary>& all) {
  const auto unheard = those(
      all, [](const RankSummary& one) { return !one.rank->sockets.empty() && one.inside > 0; });
  const bool moved = std::any_of(
      all.begin(), all.end(), [](const RankSummary& one) { return one.inside > 0 && !one.stands; });
  if (unheard.empty() || moved) return std::nullopt;
  JobVerdict found{JobState::hung, "unreachable", numbers_of(unheard), "", {}, {}};
  const auto& first = unheard.front()->rank->sockets.front();
  found.says = fmt::format("what {} {} to {} is not acknowledged", ranks_text(found.ranks),
                           found.ranks.size() == 1 ? "sends" : "send", first.peer);
  for (const auto* one : unheard)
    for (const auto& socket : one->rank->sockets)
      found.evidence.push_back(fmt::format(
          "rank {}: {} to {}, {} sent again {} without an answer", one->rank->rank,
          socket.connecting ? "a connection" : counted(socket.queued_bytes, "byte"), socket.peer,
          socket.connecting ? "asked for," : "waiting,", counted(socket.retransmits, "time")));
  found.next = {fmt::format(
      "ip route get {}{}; a firewall between the two, a link that is down or "
      "an address that is not the peer's",
      first.peer.substr(0, first.peer.rfind(':')), on_host(unheard.front()->rank->host))};
  return found;
}

/// Whether ranks leave a collective at different times, by who its root is.
bool has_root(std::string_view call) {
  if (call.find("educe_scatter") != std::string_view::npos) return false;
  call = call.substr(call.find_last_of("_:") + 1);
  if (call.starts_with("I") || call.starts_with("i")) call.remove_prefix(1);
  for (std::string_view name :
       {"bcast", "reduce", "gather", "gatherv", "scatter", "scatterv", "Bcast", "Reduce", "Gather",
        "Gatherv", "Scatter", "Scatterv", "broadcast"})
    if (call == name) return true;
  return false;
}

/// All are in calls and none has moved.
MaybeVerdict find_standing(const LiveJob& job, const std::vector<RankSummary>& all) {
  const auto stand = those(all, [](const RankSummary& one) { return one.stands; });
  if (stand.empty() || stand.size() != all.size() || job.seconds < kFewestSeconds)
    return std::nullopt;
  const auto on_gpus = those(all, needs_gpu);
  if (!on_gpus.empty() && (on_gpus.size() == all.size() || !on_still_gpus(on_gpus)))
    return standing_on_gpus(job, on_gpus);
  std::map<std::string, std::vector<int>> by_call;
  for (const auto* one : stand) by_call[one->call].push_back(one->rank->rank);
  JobVerdict found{JobState::hung, "", {}, "", {}, {}};
  if (by_call.size() == 1) {
    const bool messages = stand.front()->kind == CallKind::point_to_point;
    found.id = messages ? "messages" : "same-call";
    found.says =
        fmt::format("{} in {}, and none gets on", all_do(job, "stand"), stand.front()->call);
    found.next = {messages ? "a message is waited for that nobody sends: another tag, peer or "
                             "communicator"
                           : "they differ in count, root, datatype, order or communicator, or one "
                             "has left the call earlier: look at the arguments with `gdb -p " +
                                 std::to_string(stand.front()->rank->pid) + "`" +
                                 on_host(stand.front()->rank->host) + " in a build with -g"};
    return found;
  }
  // Those who are fewest are the odd ones; of two with one rank each, both.
  std::size_t fewest = stand.size();
  for (const auto& [call, ranks] : by_call) fewest = std::min(fewest, ranks.size());
  std::vector<std::string> parts;
  for (const auto& [call, ranks] : by_call) {
    parts.push_back(fmt::format("{} in {}", ranks_text(ranks), call));
    if (ranks.size() == fewest) found.ranks.insert(found.ranks.end(), ranks.begin(), ranks.end());
  }
  std::sort(found.ranks.begin(), found.ranks.end());
  const auto rooted = std::find_if(by_call.begin(), by_call.end(),
                                   [](const auto& one) { return has_root(one.first); });
  // Who has left it for the next one may have done so rightly.
  if (rooted != by_call.end()) found.ranks.clear();
  found.id = "other-call";
  found.says = "ranks stand in different calls: " + join(parts, ", ");
  if (rooted != by_call.end())
    found.next = {
        fmt::format("a rank has another root in {0}, so that others leave it too early, or "
                    "makes another call: compare the arguments of {0} on all ranks",
                    rooted->first)};
  else
    found.next = {
        "the calls of all ranks must come in one order: look for a branch on the rank "
        "before the call"};
  return found;
}

/// It has done nothing, and a write or a wait for a disk would end by itself.
bool does_nothing(const RankSummary& one) {
  const bool on_disk =
      std::any_of(one.rank->looks.begin(), one.rank->looks.end(), [](const auto& look) {
        return look.state == 'D' || look.kernel_call.starts_with("in a write") ||
               look.kernel_call.starts_with("in a sync");
      });
  const bool ready = one.waiting > kNoCore;
  return one.cpu < kStill && !ready && !on_disk;
}

/// Of those who stand: their GPUs work, and the call ends by itself.
std::vector<const RankSummary*> with_busy_gpus(const std::vector<RankSummary>& all) {
  return those(all, [](const RankSummary& one) {
    return one.stands && needs_gpu(one) && one.gpu > kIdleGpu;
  });
}

JobVerdict gpu_works(const std::vector<const RankSummary*>& busy,
                     const std::vector<const RankSummary*>& absent) {
  JobVerdict found{JobState::waiting, "waits-for", numbers_of(busy), "", {}, {}};
  found.says = fmt::format(
      "{} in {}, and {}",
      ranks_text(found.ranks) + (busy.size() == 1 ? "'s GPU works" : " have GPUs that work"),
      busy.front()->call,
      ranks_text(numbers_of(absent)) + (absent.size() == 1 ? " is" : " are") + " outside of calls");
  if (const auto& meanwhile = absent.front()->meanwhile; !meanwhile.empty())
    found.says += ": " + meanwhile;
  found.next = {"an evaluation on some of the ranks looks so: look again in a while"};
  return found;
}

/// Some stand in a call all the time, and others are outside of any all the time.
MaybeVerdict find_absent(const LiveJob& job, const std::vector<RankSummary>& all) {
  const auto stand = those(all, [](const RankSummary& one) { return one.stands; });
  const auto absent = those(all, [](const RankSummary& one) {
    return one.outside == 1 && one.rank->looks.size() >= kFewestLooks;
  });
  if (stand.empty() || absent.empty() || stand.size() + absent.size() != all.size() ||
      job.seconds < kFewestSeconds)
    return std::nullopt;
  const auto idle_of = [](const RankSummary* one) { return does_nothing(*one); };
  const bool idle = std::any_of(absent.begin(), absent.end(), idle_of);
  if (const auto busy = with_busy_gpus(all); idle && !busy.empty()) return gpu_works(busy, absent);
  std::vector<const RankSummary*> blamed;
  for (const auto* one : absent)
    if (!idle || idle_of(one)) blamed.push_back(one);
  JobVerdict found{idle ? JobState::hung : JobState::waiting,
                   idle ? "held" : "waits-for",
                   numbers_of(blamed),
                   "",
                   {},
                   {}};
  const auto& meanwhile = blamed.front()->meanwhile;
  found.says = fmt::format(
      "{} {} in {} for {}, which {} not in it: {}", ranks_text(numbers_of(stand)),
      stand.size() == 1 ? "waits" : "wait", stand.front()->call, ranks_text(found.ranks),
      found.ranks.size() == 1 ? "is" : "are", meanwhile.empty() ? "outside" : meanwhile);
  if (!idle) {
    found.says += blamed.front()->cpu < kNoCore ? "; it works on files" : "; it works";
    found.next = {
        "an evaluation or a checkpoint looks so, and a rank that is far slower or runs in "
        "a circle: look again in a while"};
  } else {
    found.next = {"what it waits for has to come: its whole stack is `eu-stack -p " +
                  std::to_string(blamed.front()->rank->pid) + "`" +
                  on_host(blamed.front()->rank->host)};
  }
  return found;
}

/// Held back by a limit of their control group.
MaybeVerdict find_throttled(const std::vector<RankSummary>& all) {
  const auto held =
      those(all, [](const RankSummary& one) { return one.throttled > kMuchThrottled; });
  if (held.empty()) return std::nullopt;
  double most = 0;
  for (const auto* one : held) most = std::max(most, one->throttled);
  return JobVerdict{JobState::slow,
                    "throttled",
                    numbers_of(held),
                    fmt::format("{} {} held back by the CPU limit of a control group",
                                ranks_text(numbers_of(held)), held.size() == 1 ? "is" : "are"),
                    {fmt::format("cpu.stat: held back {} of the time of one core", percent(most))},
                    {"give it more: docker update --cpus N CONTAINER; limits.cpu of the pod; "
                     "CPUQuota of the unit"}};
}

/// In both halves of the time alike, so that it is no moment's work.
bool late_in_both_halves(const LiveRank& rank) {
  std::size_t outside[2] = {0, 0}, read[2] = {0, 0};
  for (std::size_t i = 0; i < rank.looks.size(); ++i) {
    const std::size_t half = 2 * i < rank.looks.size() ? 0 : 1;
    if (!rank.looks[i].stack.read) continue;
    ++read[half];
    if (!waits_for_others(rank.looks[i].stack.kind)) ++outside[half];
  }
  return read[0] >= 3 && read[1] >= 3 && 2 * outside[0] >= read[0] && 2 * outside[1] >= read[1];
}

/// One gets a core far worse than the others do, who wait for it. Who has more to do than they
/// waits for a core longer as well, so that is compared with the time that each was ready.
MaybeVerdict find_starved(const LiveJob& job, const std::vector<RankSummary>& all) {
  if (all.size() < 2 || job.seconds < 2 * kFewestSeconds) return std::nullopt;
  const auto worst = std::min_element(
      all.begin(), all.end(),
      [](const RankSummary& one, const RankSummary& other) { return one.served < other.served; });
  const auto others = those(all, [&](const RankSummary& one) { return &one != &*worst; });
  const bool alone = std::all_of(others.begin(), others.end(), [&](const RankSummary* one) {
    return one->inside >= kMostly && worst->served < kFarWorse * one->served;
  });
  if (worst->waiting < kMuchWaiting || !alone) return std::nullopt;
  const auto& rank = *worst->rank;
  JobVerdict found{JobState::slow, "starved", {rank.rank}, "", {}, {}};
  found.says =
      fmt::format("{} {} in {} for {}, which was ready {} of the time and had no core{}",
                  ranks_text(numbers_of(others)), others.size() == 1 ? "waits" : "wait",
                  others.front()->call, ranks_text(found.ranks), percent(worst->waiting),
                  rank.nice > 0 ? fmt::format(", with a nice value of {}", rank.nice) : "");
  found.next = {
      fmt::format("what else runs on its cores (taskset -pc {0}; top{1}); bind ranks apart, "
                  "or renice -n 0 -p {0}{1}",
                  rank.pid, on_host(rank.host))};
  return found;
}

/// How often it kept the others waiting. Looks between which none of them has got on, as in an
/// evaluation, are one time.
int times_late(const LiveRank& rank, const std::vector<const RankSummary*>& others) {
  const auto outside = [&](std::size_t i) {
    return rank.looks[i].stack.read && !waits_for_others(rank.looks[i].stack.kind);
  };
  int times = 0;
  for (std::size_t i = 0; i < rank.looks.size(); ++i) {
    const auto stood = [&](const RankSummary* one) {
      const auto& looks = one->rank->looks;
      if (i < looks.size() && looks[i].launched > 0 && looks[i - 1].launched > 0)
        return looks[i].launched == looks[i - 1].launched;
      return i < looks.size() && looks[i].stack.memory != 0 &&
             same_call(looks[i].stack, looks[i - 1].stack);
    };
    if (!outside(i)) continue;
    if (i == 0 || !outside(i - 1) || !std::all_of(others.begin(), others.end(), stood)) ++times;
  }
  return times;
}

/// Others wait for it again and again.
MaybeVerdict find_late(const LiveJob& job, const std::vector<RankSummary>& all) {
  const bool busy = std::all_of(all.begin(), all.end(),
                                [](const RankSummary& one) { return one.waiting > kBusy; });
  const auto late = those(all, [&](const RankSummary& one) {
    return one.outside >= (busy ? kMostlyIfBusy : kMostly) && late_in_both_halves(*one.rank);
  });
  const auto others = those(all, [](const RankSummary& one) {
    return one.inside >= 1 - kSeldom && one.kind != CallKind::start;
  });
  // In messages alone ranks of a pipeline wait for the longest stage, which may be as it should.
  const bool collective = std::any_of(others.begin(), others.end(), [](const RankSummary* one) {
    return std::any_of(one->rank->looks.begin(), one->rank->looks.end(), [](const RankLook& look) {
      return look.stack.kind == CallKind::collective || look.stack.kind == CallKind::gpu;
    });
  });
  if (late.empty() || others.empty() || late.size() + others.size() != all.size() ||
      late.size() > others.size() || !collective || job.seconds < 2 * kFewestSeconds ||
      times_late(*late.front()->rank, others) < kOftenLate)
    return std::nullopt;
  const auto& first = *late.front();
  JobVerdict found{JobState::slow, "late", numbers_of(late), "", {}, {}};
  found.says = fmt::format("{} {} last: {} {} in {} meanwhile; it is {}", ranks_text(found.ranks),
                           late.size() == 1 ? "comes" : "come", ranks_text(numbers_of(others)),
                           others.size() == 1 ? "waits" : "wait", others.front()->call,
                           first.meanwhile.empty() ? "outside of calls" : first.meanwhile);
  // Ranks meet at a barrier on purpose, as behind what one of them does for all.
  if (std::all_of(others.begin(), others.end(), [](const RankSummary* one) {
        return one->call.find("arrier") != std::string::npos;
      })) {
    found.state = JobState::waiting;
    found.id = "waits-for";
    found.next = {
        "checkpoints and evaluations of one rank look so: do them less often, or on all ranks"};
    return found;
  }
  found.next = {first.cpu < kComputes && first.waiting < kMuchWaiting
                    ? "it does not compute: its loader, its files or a pause are slow"
                    : "it computes: more work than the others', or a slower core"};
  return found;
}

JobVerdict rest_of(const LiveJob& job, const std::vector<RankSummary>& all) {
  if (all.empty()) return {JobState::unknown, "unseen", {}, "all ranks found have ended", {}, {}};
  const auto unread =
      those(all, [](const RankSummary& one) { return one.inside + one.outside == 0; });
  if (unread.size() == all.size()) {
    JobVerdict found{JobState::unknown, "unseen", {}, "no stack of any rank can be read", {}, {}};
    found.evidence.push_back(unread.front()->rank->stack_problem);
    found.next = {
        "as the ranks' user with kernel.yama.ptrace_scope=0, else as root or with "
        "CAP_SYS_PTRACE; apt-get install elfutils"};
    return found;
  }
  const bool nobody_calls =
      std::all_of(all.begin(), all.end(), [](const RankSummary& one) { return one.inside == 0; });
  const bool nobody_works =
      std::all_of(all.begin(), all.end(), [](const RankSummary& one) { return does_nothing(one); });
  const bool launches =
      std::any_of(all.begin(), all.end(), [](const RankSummary& one) { return one.launches; });
  if (nobody_calls && nobody_works && !launches && job.seconds >= kFewestSeconds)
    return {JobState::unknown,
            "idle",
            {},
            "no rank is in a call of MPI, NCCL or Gloo, and none works",
            {},
            {"if that lasts, `eu-stack -p PID` shows what each waits for"}};
  return {JobState::running,
          "moving",
          {},
          "the job goes on, and no rank keeps the others waiting",
          {},
          {}};
}

}  // namespace

std::vector<int> numbers_of(const std::vector<const RankSummary*>& some) {
  std::vector<int> numbers;
  for (const auto* one : some) numbers.push_back(one->rank->rank);
  return numbers;
}

std::string on_host(const std::string& host) { return host.empty() ? "" : " on " + host; }

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr std::size_t kMost = 12;
  const auto shown = std::min(ranks.size(), kMost);
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < shown; ++i)
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  if (shown < ranks.size()) text += fmt::format(" and {} more", ranks.size() - shown);
  return text;
}

std::string all_do(const LiveJob& job, const std::string& deed) {
  std::vector<int> numbers;  // which two processes may have
  for (const auto& rank : job.ranks)
    if (numbers.empty() || numbers.back() != rank.rank) numbers.push_back(rank.rank);
  const auto seen = static_cast<int>(numbers.size());
  if (job.world <= seen) return "all ranks " + deed;
  return fmt::format("{} of {} {}{}", ranks_text(numbers), job.world, deed, seen == 1 ? "s" : "");
}

JobVerdict verdict(const LiveJob& job) {
  const auto all = summaries_of(job);
  MaybeVerdict found = find_stopped(all);
  if (!found) found = find_ended(job, all);
  if (!found) found = find_unreachable(all);
  if (!found) found = find_standing(job, all);
  if (!found) found = find_throttled(all);
  if (!found) found = find_absent(job, all);
  if (!found) found = find_starved(job, all);
  if (!found) found = find_late(job, all);
  if (!found) found = find_busy_gpu(job, all);
  if (!found) found = rest_of(job, all);
  if (found->id != "ended")  // it may be no rank's end, but it is known
    for (const auto& one : job.ended)
      if (found->evidence.size() < kMostLines) found->evidence.push_back(end_words(one));
  for (auto& line : lines_of(all)) found->evidence.push_back(std::move(line));
  return *found;
}

bool is_settled(const JobVerdict& verdict, const LiveJob& job) {
  return verdict.state == JobState::hung &&
         (verdict.id == "stopped" || job.seconds >= kFewestSeconds);
}

}  // namespace dynamiccl
