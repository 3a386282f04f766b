#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/job/job_verdict.hpp"
#include "orchestrator/doctor/job/logged_job.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kMostEvidence = 12;

/// What a group of ranks says, and who in it waits: who is missed there may wait elsewhere.
struct GroupFinding {
  JobVerdict verdict;
  std::set<int> waiting;
};

std::string call_words(const LoggedCall& call) {
  return call.arguments.empty() ? call.name : fmt::format("{} ({})", call.name, call.arguments);
}

/// "nccl:all_reduce" and "AllReduce" are one.
std::string bare_name(const std::string& name) {
  std::string bare;
  for (const char letter :
       name.substr(name.find(':') == std::string::npos ? 0 : name.find(':') + 1))
    if (letter != '_') bare += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return bare;
}

/// NCCL's lines of calls name a GPU: on one machine with one rank for each that is the rank.
void number_by_gpu(LoggedGroup& group) {
  std::set<int> gpus;
  std::set<std::string> hosts;
  for (const auto& [key, member] : group.members) {
    if (member.rank >= 0) return;
    gpus.insert(member.gpu);
    hosts.insert(member.host);
  }
  if (hosts.size() == 1 && gpus.size() == group.members.size())
    for (auto& [key, member] : group.members) member.rank = member.gpu;
}

std::vector<const LoggedMember*> members_of(const LoggedGroup& group) {
  std::vector<const LoggedMember*> members;
  for (const auto& [key, member] : group.members)
    if (member.rank >= 0) members.push_back(&member);
  std::sort(members.begin(), members.end(),
            [](const auto* one, const auto* other) { return one->rank < other->rank; });
  return members;
}

std::string place_words(const CallPlace& place, bool nccl) {
  return nccl ? fmt::format("opCount {:x}", place.first == 0 ? 0 : place.first - 1)
              : fmt::format("call {}", place.first);
}

std::string last_words(const LoggedMember& member, bool nccl) {
  if (!member.entered) return fmt::format("rank {}: no call", member.rank);
  const auto found = member.calls.find(*member.entered);
  auto text = fmt::format("rank {}: last {}{}", member.rank,
                          found == member.calls.end() ? "" : call_words(found->second) + ", ",
                          place_words(*member.entered, nccl));
  if (member.ended && *member.ended != CallPlace{0, 0})
    text += ", ended up to " + place_words(*member.ended, nccl);
  return text;
}

std::vector<int> ranks_in(const std::vector<const LoggedMember*>& members) {
  std::vector<int> ranks;
  for (const auto* member : members) ranks.push_back(member->rank);
  return ranks;
}

/// One call of a place on its ranks, by what has to be equal.
using RanksByCall = std::map<std::string, std::vector<int>>;

JobVerdict parted(const LoggedGroup& group, const CallPlace& place, const RanksByCall& by_call,
                  bool names_differ, bool nccl) {
  JobVerdict found{JobState::hung, names_differ ? "other-call" : "same-call", {}, "", {}, {}};
  std::size_t fewest = group.members.size();
  std::vector<std::string> parts;
  for (const auto& [call, ranks] : by_call) fewest = std::min(fewest, ranks.size());
  for (const auto& [call, ranks] : by_call) {
    parts.push_back(fmt::format("{} in {}", ranks_text(ranks), call));
    if (ranks.size() == fewest) found.ranks.insert(found.ranks.end(), ranks.begin(), ranks.end());
  }
  std::sort(found.ranks.begin(), found.ranks.end());
  found.says = fmt::format("ranks of {} differ at {}: {}", group.name, place_words(place, nccl),
                           join(parts, ", "));
  found.next = {names_differ
                    ? "the calls of all ranks must come in one order: look for a branch on "
                      "the rank before the call"
                    : "count, datatype and root have to be equal on all ranks: an uneven "
                      "last batch or parameters that only some ranks have"};
  return found;
}

/// The first place at which ranks have entered different calls, and none has ended there.
std::optional<JobVerdict> find_parted(const LoggedGroup& group,
                                      const std::vector<const LoggedMember*>& members, bool nccl) {
  std::map<CallPlace, std::vector<std::pair<int, const LoggedCall*>>> at;
  for (const auto* member : members)
    for (const auto& [place, call] : member->calls) at[place].emplace_back(member->rank, &call);
  for (const auto& [place, calls] : at) {
    std::set<std::string> names;
    RanksByCall by_name, by_call;
    bool all_ended = true, must_agree = true;
    for (const auto& [rank, call] : calls) {
      names.insert(bare_name(call->name));
      by_name[call->name].push_back(rank);
      by_call[call_words(*call)].push_back(rank);
      all_ended = all_ended && call->ended;
      must_agree = must_agree && call->must_agree;
    }
    if (all_ended) continue;
    if (names.size() > 1) return parted(group, place, by_name, true, nccl);
    if (must_agree && by_call.size() > 1) return parted(group, place, by_call, false, nccl);
  }
  return std::nullopt;
}

/// The name that others have for the call of a place.
std::string name_at(const std::vector<const LoggedMember*>& members, const CallPlace& place) {
  for (const auto* member : members)
    if (const auto found = member->calls.find(place); found != member->calls.end())
      return call_words(found->second);
  return "a call";
}

/// The first place after `from` that anybody has entered.
CallPlace next_place(const std::vector<const LoggedMember*>& members,
                     const std::optional<CallPlace>& from) {
  std::optional<CallPlace> next;
  for (const auto* member : members) {
    const auto found = from ? member->calls.upper_bound(*from) : member->calls.begin();
    if (found != member->calls.end() && (!next || found->first < *next)) next = found->first;
  }
  return next.value_or(from ? CallPlace{from->first + 1, 0} : CallPlace{0, 0});
}

/// Ranks of whom there is no word, where that is the odd case and not how the log was cut.
std::vector<int> silent_ranks(const LoggedGroup& group,
                              const std::vector<const LoggedMember*>& members) {
  std::vector<int> silent;
  const auto known = ranks_in(members);
  if (group.size >= 2 * known.size()) return silent;
  const auto look_for = [&](int rank) {
    if (!std::binary_search(known.begin(), known.end(), rank)) silent.push_back(rank);
  };
  for (const int rank : group.expected) look_for(rank);
  if (group.expected.empty())
    for (int rank = 0; rank < static_cast<int>(group.size); ++rank) look_for(rank);
  return 2 * silent.size() < group.size ? silent : std::vector<int>{};
}

GroupFinding absent_finding(const LoggedGroup& group, const std::vector<int>& absent,
                            const std::vector<int>& waiting, const std::vector<int>& silent,
                            const std::string& call, bool sure) {
  GroupFinding found{{sure ? JobState::hung : JobState::waiting, "absent", absent, "", {}, {}},
                     {waiting.begin(), waiting.end()}};
  const bool one = absent.size() == 1;
  found.verdict.says = fmt::format("{} {} not come to {} in {}, which {} {} entered",
                                   ranks_text(absent), one ? "has" : "have", call, group.name,
                                   ranks_text(waiting), waiting.size() == 1 ? "has" : "have");
  if (!silent.empty())
    found.verdict.evidence.push_back(
        fmt::format("of {} there is no word of {} at all: it has ended, or stood before",
                    ranks_text(silent), group.name));
  found.verdict.next = {
      "what it does instead: `dynamiccl doctor --job PID` on its node while the job is there, else "
      "what it said last"};
  if (!sure)
    found.verdict.next.push_back(
        "a log that goes on ends so, too: it is a hang where nothing was written for a while");
  return found;
}

/// Ends are known: who waits, in the first call that has not ended, and who is not there.
std::optional<GroupFinding> find_unended(const LoggedGroup& group,
                                         const std::vector<const LoggedMember*>& members,
                                         bool nccl) {
  std::optional<CallPlace> first;
  std::vector<const LoggedMember*> unended;
  for (const auto* member : members) {
    if (!member->entered || (member->ended && *member->entered <= *member->ended)) continue;
    unended.push_back(member);
    const auto place = next_place({member}, member->ended);
    first = first ? std::min(*first, place) : place;
  }
  const auto silent = silent_ranks(group, members);
  // A communicator's start ends on nobody unless all have come.
  if (unended.empty()) return std::nullopt;
  const auto place = first.value_or(CallPlace{0, 0});
  std::vector<int> absent = silent, waiting, through;
  for (const auto* member : members)
    if (!member->entered || *member->entered < place)
      absent.push_back(member->rank);
    else if (member->ended && *member->ended >= place)
      through.push_back(member->rank);
    else
      waiting.push_back(member->rank);
  std::sort(absent.begin(), absent.end());
  const auto call = fmt::format("{} ({})", name_at(members, place), place_words(place, nccl));
  if (!absent.empty()) return absent_finding(group, absent, waiting, silent, call, true);
  GroupFinding found{
      {group.timed_out ? JobState::hung : JobState::waiting,
       "same-call",
       waiting.size() < members.size() ? waiting : std::vector<int>{},
       "",
       {},
       {"none is missing: a link, a GPU or the call's other kernels; NCCL's warnings "
        "and `dmesg` of the nodes"}},
      {waiting.begin(), waiting.end()}};
  found.verdict.says =
      through.empty() ? fmt::format("{} of {} {} in {}, and it has not ended", ranks_text(waiting),
                                    group.name, waiting.size() == 1 ? "is" : "are", call)
                      : fmt::format("{} of {} {} not through {}, and {} {}", ranks_text(waiting),
                                    group.name, waiting.size() == 1 ? "is" : "are", call,
                                    ranks_text(through), through.size() == 1 ? "is" : "are");
  return found;
}

/// Only beginnings are known: whoever has entered fewest calls is missed by the others.
std::optional<GroupFinding> find_behind(const LoggedGroup& group,
                                        const std::vector<const LoggedMember*>& members, bool nccl,
                                        bool sure) {
  const auto by_entered = [](const auto* one, const auto* other) {
    return one->entered < other->entered;
  };
  const auto [least, most] = std::minmax_element(members.begin(), members.end(), by_entered);
  const auto silent = silent_ranks(group, members);
  if (least == members.end() || ((*least)->entered == (*most)->entered && silent.empty()))
    return std::nullopt;
  std::vector<int> absent = silent, waiting;
  const auto fewest = silent.empty() ? (*least)->entered : CallPlace{0, 0};
  for (const auto* member : members)
    (silent.empty() && member->entered == fewest ? absent : waiting).push_back(member->rank);
  const auto place = next_place(members, fewest);
  return absent_finding(group, absent, waiting, silent,
                        fmt::format("{} ({})", name_at(members, place), place_words(place, nccl)),
                        sure);
}

std::optional<GroupFinding> finding_of(LoggedGroup group, bool timed_out) {
  number_by_gpu(group);
  const auto members = members_of(group);
  const bool nccl = std::any_of(members.begin(), members.end(),
                                [](const auto* member) { return member->gpu >= 0; });
  // Two communicators of one size whose start was not logged look the same.
  const auto ranks = ranks_in(members);
  if (members.empty() || std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end())
    return std::nullopt;
  std::optional<GroupFinding> found;
  if (auto apart = find_parted(group, members, nccl))
    found = GroupFinding{*apart, {}};
  else if (group.tells_ends || (nccl && std::all_of(members.begin(), members.end(), [](auto* one) {
                                  return !one->entered || *one->entered == CallPlace{0, 0};
                                })))
    found = find_unended(group, members, nccl);
  else
    found = find_behind(group, members, nccl, timed_out);
  if (!found) return std::nullopt;
  for (const auto* member : members)
    if (found->verdict.evidence.size() < kMostEvidence)
      found->verdict.evidence.push_back(last_words(*member, nccl));
  return found;
}

/// Of findings of one kind the one whose missed ranks wait nowhere else: they are the cause.
std::optional<JobVerdict> root_of(const std::vector<GroupFinding>& findings, const char* id,
                                  bool with_ranks) {
  std::set<int> waiting;
  for (const auto& one : findings) waiting.insert(one.waiting.begin(), one.waiting.end());
  std::optional<JobVerdict> best;
  for (const auto& one : findings) {
    if (one.verdict.id != id || one.verdict.ranks.empty() == with_ranks) continue;
    const bool is_root = std::none_of(
        one.verdict.ranks.begin(), one.verdict.ranks.end(),
        [&](int rank) { return one.waiting.contains(rank) || waiting.contains(rank); });
    if (!best || is_root) best = one.verdict;
    if (is_root) break;
  }
  return best;
}

std::optional<JobVerdict> said_with(const LoggedJob& job, bool ranks,
                                    const std::vector<std::string>& ids) {
  for (const auto& one : job.said)
    if (one.ranks.empty() != ranks && std::find(ids.begin(), ids.end(), one.id) != ids.end())
      return one;
  return std::nullopt;
}

/// Of each communicator the last answer, compared with the one before it.
std::vector<JobVerdict> ras_verdicts(const LoggedJob& job) {
  std::map<std::string, std::vector<const RasAnswer*>> answers;
  for (const auto& one : job.ras) answers[one.communicator].push_back(&one);
  std::vector<JobVerdict> found;
  for (const auto& [communicator, all] : answers) {
    const auto& last = *all.back();
    JobVerdict gone{JobState::hung, "", {}, "", {}, {}};
    for (const auto& [rank, missing] : last.missing) {
      gone.id = missing.dead ? "ended" : missing.unresponsive ? "stopped" : "absent";
      gone.ranks.push_back(rank);
      gone.evidence.push_back(fmt::format("rank {}: {}", rank, missing.where));
    }
    if (!gone.ranks.empty()) {
      gone.says =
          fmt::format("NCCL's RAS {} {}",
                      gone.id == "ended"     ? "holds for dead"
                      : gone.id == "stopped" ? "gets no answer (stopped, over or cut off) of"
                                             : "finds that they have not joined or have left their "
                                               "communicator:",
                      ranks_text(gone.ranks));
      gone.next = {"state and signals of the process: `dynamiccl doctor --job PID` on its node"};
      found.push_back(gone);
    }
    const bool stood = all.size() > 1 && all[all.size() - 2]->launched == last.launched;
    std::map<std::string, std::map<std::uint64_t, RanksAtCount>> by_call;
    for (const auto& [rank, launched] : last.launched)
      for (const auto& [call, count] : launched) {
        auto& at = by_call[call][count];
        ++at.ranks;
        at.named.push_back(rank);
      }
    for (const auto& [call, by_count] : by_call)
      if (by_count.size() > 1) found.push_back(uneven_counts(call, by_count, stood));
  }
  return found;
}

}  // namespace

JobVerdict uneven_counts(const std::string& call,
                         const std::map<std::uint64_t, RanksAtCount>& by_count, bool stood) {
  JobVerdict said{stood ? JobState::hung : JobState::waiting, "absent", {}, "", {}, {}};
  const auto& [least, behind] = *by_count.begin();
  const auto& [most, ahead] = *by_count.rbegin();
  std::vector<std::string> parts;
  for (const auto& [count, at] : by_count)
    parts.push_back(fmt::format("{} up to {}",
                                at.named.empty() || at.named.size() > kMostEvidence
                                    ? counted(at.ranks, "rank")
                                    : ranks_text(at.named),
                                count));
  // Few that are ahead have made a call that the others do not make.
  const bool few_ahead = ahead.ranks < behind.ranks;
  said.id = few_ahead ? "other-call" : "absent";
  said.ranks = few_ahead ? ahead.named : behind.named;
  said.says = fmt::format("ranks have launched {} unevenly: {}", call, join(parts, ", "));
  said.next = {few_ahead ? "look for a branch on the rank before that call"
                         : "what these do instead: `dynamiccl doctor --job PID` on their node"};
  if (!stood)
    said.next.emplace_back(
        "ranks of a job that goes on are some calls apart, too: a second answer some seconds later "
        "tells (name both)");
  return said;
}

JobVerdict verdict(const LoggedJob& job) {
  const bool timed_out = std::any_of(job.groups.begin(), job.groups.end(),
                                     [](const auto& one) { return one.second.timed_out; });
  std::vector<GroupFinding> findings;
  for (const auto& [key, group] : job.groups)
    if (auto one = finding_of(group, timed_out)) findings.push_back(std::move(*one));
  for (auto& one : ras_verdicts(job)) findings.push_back({std::move(one), {}});
  std::optional<JobVerdict> found = said_with(job, true, {"ended", "stopped"});
  for (const char* id : {"ended", "stopped", "other-call"})
    if (!found) found = root_of(findings, id, true);
  if (!found) found = root_of(findings, "same-call", true);
  if (!found) found = root_of(findings, "absent", true);
  if (!found) found = said_with(job, true, {"absent", "other-call"});
  if (!found) found = said_with(job, false, {"ended", "stopped", "unreachable", "other-call"});
  if (!found) found = root_of(findings, "same-call", false);
  if (!found) found = said_with(job, false, {"absent"});
  if (!found)
    found = JobVerdict{JobState::unknown,
                       "unseen",
                       {},
                       "what was read names no rank that others wait for",
                       {},
                       {"NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,COLL on all ranks, "
                        "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 with TORCH_NCCL_DUMP_ON_TIMEOUT=1, or "
                        "`ncclras -v` in the job's network"}};
  if (timed_out && found->state == JobState::waiting) found->state = JobState::hung;
  if (timed_out && job.ras_is_content)
    found->evidence.emplace_back(
        "NCCL's RAS is content: it compares what was launched, and not what has ended");
  for (const auto& one : job.warnings)
    if (found->evidence.size() < 2 * kMostEvidence) found->evidence.push_back(one);
  return *found;
}

}  // namespace dynamiccl
