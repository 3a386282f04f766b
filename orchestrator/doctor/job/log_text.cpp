#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/job/job_verdict.hpp"
#include "orchestrator/doctor/job/logged_job.hpp"

namespace dynamiccl {
namespace {

using Line = std::string_view;

// Of a rank and communicator; ranks queue some hundreds ahead of their GPU.
constexpr std::size_t kKeptCalls = 1024;
constexpr std::size_t kMostGroups = 4096;
constexpr std::size_t kMostMembers = 65536;
constexpr std::size_t kMostWarnings = 8;
constexpr std::size_t kMostSaid = 1000;
constexpr int kMostRank = 1 << 24;

/// The number behind the first `word`, past blanks and one of ':' and '='.
std::optional<std::uint64_t> number_behind(Line line, Line word, int base = 10) {
  const auto found = line.find(word);
  if (found == Line::npos) return std::nullopt;
  auto at = found + word.size();
  while (at < line.size() && (line[at] == ' ' || line[at] == ':' || line[at] == '=')) ++at;
  std::uint64_t value = 0;
  const auto end = std::from_chars(line.data() + at, line.data() + line.size(), value, base);
  return end.ec == std::errc{} ? std::optional(value) : std::nullopt;
}

int rank_behind(Line line, Line word) {
  const auto number = number_behind(line, word);
  return number && *number < kMostRank ? static_cast<int>(*number) : -1;
}

/// The word behind `word`, up to a blank, comma or bracket.
std::string word_behind(Line line, Line word) {
  const auto found = line.find(word);
  if (found == Line::npos) return "";
  const auto rest = line.substr(found + word.size());
  return std::string(rest.substr(0, rest.find_first_of(" ,)]")));
}

/// What stands before NCCL's message: "host:pid:tid [gpu]".
struct Speaker {
  std::string host;
  std::string process;  ///< "host:pid"
  int gpu = -1;
};

std::optional<Speaker> speaker_of(Line before) {
  // Behind it a warning has its place in the source, before it launchers and journals their own.
  const auto words = split(before, ' ');
  for (std::size_t i = words.size(); i-- > 1;) {
    const auto& gpu = words[i];
    const auto& place = words[i - 1];
    const auto thread = place.rfind(':');
    const auto pid = thread == std::string::npos || thread == 0 ? std::string::npos
                                                                : place.rfind(':', thread - 1);
    if (!gpu.starts_with('[') || !gpu.ends_with(']') || pid == std::string::npos) continue;
    return Speaker{place.substr(0, pid), place.substr(0, thread), rank_behind(gpu, "[")};
  }
  return std::nullopt;
}

LoggedGroup* group_named(LoggedJob& job, const std::string& key, const std::string& name) {
  if (job.groups.size() >= kMostGroups && !job.groups.contains(key)) return nullptr;
  auto& group = job.groups[key];
  if (group.name.empty()) group.name = name;
  return &group;
}

LoggedMember* member_named(LoggedGroup* group, const std::string& key) {
  if (group == nullptr || (group->members.size() >= kMostMembers && !group->members.contains(key)))
    return nullptr;
  return &group->members[key];
}

void expect_ranks(LoggedGroup& group, std::uint64_t size) {
  if (group.size == 0 && size <= kMostMembers) group.size = size;
}

/// "... comm 0x7f rank 1 nranks 4 cudaDev 1 ... commId 0x9a - Init COMPLETE".
void read_start(LoggedJob& job, const Speaker& speaker, Line message) {
  const bool complete = message.find("Init COMPLETE") != Line::npos;
  if (!complete && message.find("Init START") == Line::npos) return;
  const auto comm = word_behind(message, "comm ");
  const auto size = number_behind(message, " nranks ");
  const int rank = rank_behind(message, " rank ");
  if (comm.empty() || !size || rank < 0) return;
  const auto id = word_behind(message, "commId ");
  const auto key = id.empty() ? fmt::format("nccl of {}", *size) : "nccl " + id;
  const auto process = speaker.process + ":" + comm;
  auto* group = group_named(job, key,
                            id.empty() ? fmt::format("a communicator of {} ranks", *size)
                                       : fmt::format("communicator {} of {} ranks", id, *size));
  auto* member = member_named(group, process);
  if (member == nullptr) return;
  if (job.group_of.size() < kMostMembers) job.group_of[process] = key;
  expect_ranks(*group, *size);
  member->rank = rank;
  member->host = speaker.host;
  member->gpu = speaker.gpu;
  member->enter({0, 0}, {"ncclCommInitRank", "", true, complete});
  if (complete && !member->ended) member->ended = CallPlace{0, 0};
}

/// "AllReduce: opCount 28c sendbuff ... count 128 datatype 7 op 0 root 0 comm 0x55 [nranks=4] ...".
void read_call(LoggedJob& job, const Speaker& speaker, Line message) {
  const auto colon = message.find(": opCount ");
  const auto count = number_behind(message, ": opCount ", 16);
  const auto name = message.substr(0, colon);
  if (!count || name == "Send" || name == "Recv" || name.size() > 40) return;
  const auto size = number_behind(message, "[nranks=");
  const auto comm = word_behind(message, " comm ");
  const auto process = speaker.process + ":" + comm;
  const auto known = job.group_of.find(process);
  const auto key =
      known != job.group_of.end() ? known->second : fmt::format("nccl of {}", size.value_or(0));
  auto* group = group_named(job, key, fmt::format("a communicator of {} ranks", size.value_or(0)));
  auto* member = member_named(group, process);
  if (member == nullptr) return;
  if (size) expect_ranks(*group, *size);
  member->host = speaker.host;
  member->gpu = speaker.gpu;
  const auto from = message.find(" count ");
  const auto to = message.find(" comm ");
  const auto arguments =
      from < to && to != Line::npos ? message.substr(from + 1, to - from - 1) : Line();
  std::uint64_t nth = 0;
  while (member->calls.contains({*count + 1, nth})) ++nth;
  member->enter({*count + 1, nth}, {std::string(name), std::string(arguments), true, false});
}

/// Warnings that name what went: a peer that is gone, or an address that does not answer.
void read_warning(LoggedJob& job, const Speaker& speaker, Line message) {
  struct Kind {
    Line words;
    const char* verdict;
    const char* next;
  };
  static constexpr std::array kKinds{
      Kind{"losed by remote peer", "ended", "look at the peer's own output: it ended first"},
      Kind{"onnection reset", "ended", "look at the peer's own output: it ended first"},
      Kind{"imed out", "unreachable", "a firewall or a link that is down between the two"},
      Kind{"No route to host", "unreachable",
           "NCCL_SOCKET_IFNAME names an interface without route"},
      Kind{"onnection refused", "unreachable", "the peer has ended, or a firewall refuses"},
      Kind{"status=12", "unreachable", "RDMA got no answer: cable, switch or the peer's port"},
      Kind{"ollective mismatch", "other-call",
           "NCCL_DEBUG_SUBSYS=COLL logs the calls of all ranks"},
      Kind{"ismatched collective", "other-call",
           "NCCL_DEBUG_SUBSYS=COLL logs the calls of all ranks"},
  };
  const auto text =
      fmt::format("{} [{}]: {}", speaker.process, speaker.gpu, message.substr(0, 300));
  for (const auto& kind : kKinds) {
    if (message.find(kind.words) == Line::npos) continue;
    const bool is_new = std::none_of(job.said.begin(), job.said.end(),
                                     [&](const auto& one) { return one.id == kind.verdict; });
    if (!is_new || job.said.size() >= kMostWarnings) break;
    JobVerdict said{JobState::hung, kind.verdict, {}, "NCCL warns: " + text, {}, {kind.next}};
    if (const int rank = rank_behind(message, "around rank "); rank >= 0) said.ranks = {rank};
    job.said.push_back(std::move(said));
    break;
  }
  if (job.warnings.size() < kMostWarnings) job.warnings.push_back("NCCL warns: " + text);
}

/// "[rank118]:[E...] [PG ID 0 PG GUID 0(default_pg) Rank 118] ...", older: "[Rank 65] ...".
std::string watchdog_group(Line line) {
  const auto guid = word_behind(line, "PG GUID ");
  const auto id = word_behind(line, "PG ID ");
  if (!guid.empty()) return "process group " + guid + (guid.find('(') != Line::npos ? ")" : "");
  return id.empty() ? "the job's process group" : "process group " + id;
}

LoggedMember* watchdog_member(LoggedJob& job, Line line, const std::string& name) {
  int rank = rank_behind(line, "[rank");
  if (rank < 0) rank = rank_behind(line, "Rank ");
  auto* group = rank < 0 ? nullptr : group_named(job, "watchdog " + name, name);
  auto* member = member_named(group, std::to_string(rank));
  if (member == nullptr) return nullptr;
  group->tells_ends = group->timed_out = true;
  member->rank = rank;
  return member;
}

/// "WorkNCCL(SeqNum=1559, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=...) ran for ...".
void read_timeout(LoggedJob& job, Line line) {
  const auto number = number_behind(line, "WorkNCCL(SeqNum=");
  if (!number) return;
  auto* member = watchdog_member(job, line, watchdog_group(line));
  if (member == nullptr) return;
  const auto in = word_behind(line, "NumelIn="), out = word_behind(line, "NumelOut=");
  member->enter({*number, 0},
                {word_behind(line, "OpType="),
                 in.empty() ? "" : fmt::format("{} elements in, {} out", in, out), true, false});
  if (*number > 0 && !member->ended) member->ended = CallPlace{*number - 1, 0};
}

/// "last enqueued work: 2398578, last completed work: 2398458", with "NCCL" in older ones.
void read_progress(LoggedJob& job, Line line) {
  const auto entered_at = line.find("last enqueued"), ended_at = line.find("last completed");
  if (entered_at == Line::npos || ended_at == Line::npos) return;
  const auto entered = number_behind(line.substr(entered_at), "ork:");
  const auto ended = number_behind(line.substr(ended_at), "ork:");
  if (!entered || !ended) return;
  const auto name = watchdog_group(line);
  auto* member = watchdog_member(job, line, name);
  if (member == nullptr) return;
  // The line before tells the call and not always the group.
  const auto bare = "watchdog " + watchdog_group("");
  if (auto found = job.groups.find(bare); found != job.groups.end() && name != watchdog_group("")) {
    auto same = found->second.members.find(std::to_string(member->rank));
    if (same != found->second.members.end()) {
      member->calls.merge(same->second.calls);
      found->second.members.erase(same);
    }
    if (found->second.members.empty()) job.groups.erase(found);
  }
  member->entered = CallPlace{*entered, 0};
  member->ended = CallPlace{*ended, 0};
}

/// RAS as text tells of a communicator in a paragraph, whose lines need each other.
class RasText {
 public:
  explicit RasText(LoggedJob& job) : job_(job) {}
  void read(Line line) {
    if (line.find("communicator data from") != Line::npos) {
      finish();
      call_ = "missing";
    } else if (line.find("considered dead") != Line::npos) {
      finish();
      call_ = "dead";
    } else if (line.find("Communicator ranks have different ") != Line::npos) {
      finish();
      call_ = word_behind(line, "have different ");
    } else if (const auto up_to = number_behind(line, "launched up to operation ");
               up_to && !call_.empty()) {
      count_ = *up_to;
      by_count_[count_].ranks = number_behind(line, "").value_or(0);
    } else if (line.starts_with("Rank ") && line.find(" -- ") != Line::npos && !call_.empty()) {
      by_count_[count_].named.push_back(rank_behind(line, "Rank "));
      if (where_.size() < kMostWarnings) where_.emplace_back(line);
    } else if (line.starts_with("Process ") && !call_.empty()) {
      if (where_.size() < kMostWarnings) where_.emplace_back(line);
    } else if (line.find("RUNNING") != Line::npos && line.ends_with("OK")) {
      job_.ras_is_content = true;
    } else if (line.empty()) {
      finish();
    }
  }
  void finish() {
    if (job_.said.size() > kMostSaid) return;
    if (call_ == "missing" || call_ == "dead")
      job_.said.push_back(gone());
    else if (by_count_.size() > 1)
      job_.said.push_back(uneven_counts(call_, by_count_, false));
    call_.clear();
    by_count_.clear();
    where_.clear();
    count_ = 0;
  }

 private:
  JobVerdict gone() const {
    JobVerdict said{JobState::hung, call_ == "dead" ? "ended" : "stopped", {}, "", {}, {}};
    for (const auto& [count, at] : by_count_) said.ranks = at.named;
    const auto whom = said.ranks.empty() ? std::string("a process") : ranks_text(said.ranks);
    said.says =
        call_ == "dead"
            ? fmt::format("NCCL's RAS holds {} for dead", whom)
            : fmt::format("NCCL's RAS gets no answer of {}: stopped, over or cut off", whom);
    said.evidence = where_;
    said.next = {"on that node: state and signals of the process (`dynamiccl doctor --job PID`)"};
    return said;
  }
  LoggedJob& job_;
  std::string call_;
  std::uint64_t count_ = 0;
  std::map<std::uint64_t, RanksAtCount> by_count_;
  std::vector<std::string> where_;
};

void read_nccl_line(LoggedJob& job, Line line) {
  for (const Line mark : {Line(" NCCL INFO "), Line(" NCCL WARN ")}) {
    const auto at = line.find(mark);
    if (at == Line::npos) continue;
    const auto speaker = speaker_of(line.substr(0, at));
    if (!speaker) return;
    const auto message = line.substr(at + mark.size());
    read_log_remark(job, speaker->host, speaker->process, message);
    if (mark == " NCCL WARN ") return read_warning(job, *speaker, message);
    if (message.find(": opCount ") != Line::npos) return read_call(job, *speaker, message);
    return read_start(job, *speaker, message);
  }
  read_other_remark(job, line);
}

}  // namespace

void LoggedMember::enter(const CallPlace& place, LoggedCall call) {
  if (!entered || *entered < place) entered = place;
  calls[place] = std::move(call);
  if (calls.size() > kKeptCalls) calls.erase(calls.begin());
}

void read_log_text(LoggedJob& job, std::string_view text) {
  constexpr std::size_t kLongestLine = 4096;
  job.stack_lines_left = 0;  // another file's crash is none of this one's
  RasText ras(job);
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    const auto line = trim(text.substr(at, std::min(end - at, kLongestLine)));
    at = end + 1;
    ras.read(line);
    read_nccl_line(job, line);
    read_timeout(job, line);
    read_progress(job, line);
  }
  ras.finish();
}

}  // namespace dynamiccl
