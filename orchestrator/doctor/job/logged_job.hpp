#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "orchestrator/doctor/job/live_job.hpp"

// What a job has left in files, as pure data. Readers add to it and never throw for what they read:
// a line that says nothing known says nothing.
namespace dynamiccl {

/// The place of a call among a communicator's: NCCL's opCount or PyTorch's sequence number, and the
/// how many-th with it, as calls in a group share one. {0, 0} is the communicator's start in NCCL's
/// log, and its first call is {1, 0}.
using CallPlace = std::pair<std::uint64_t, std::uint64_t>;

struct LoggedCall {
  std::string name;        ///< "AllReduce"
  std::string arguments;   ///< "count 128 datatype 7"; "" = not given
  bool must_agree = true;  ///< arguments have to be equal on all ranks
  bool ended = false;
};

struct LoggedMember {
  int rank = -1;                          ///< -1 = not given
  int gpu = -1;                           ///< number in NCCL's lines
  std::string host;                       ///< "" = not given
  std::map<CallPlace, LoggedCall> calls;  ///< the last of them
  std::optional<CallPlace> entered;       ///< the last
  std::optional<CallPlace> ended;         ///< the last, where that is known

  void enter(const CallPlace& place, LoggedCall call);
};

/// Ranks that call collectives together.
struct LoggedGroup {
  std::string name;
  std::set<int> expected;  ///< empty = those below size
  std::size_t size = 0;    ///< 0 = not given
  bool tells_ends = false;
  bool timed_out = false;  ///< somebody waited for longer than its watchdog allows
  std::map<std::string, LoggedMember> members;
};

/// A message that means something for the whole job, and who has written it.
struct LoggedSign {
  std::map<std::string, std::string> lines;  ///< by process, the first of each
};

struct LoggedJob {
  std::map<std::string, LoggedGroup> groups;
  std::vector<RasAnswer> ras;
  bool ras_is_content = false;                      ///< it answered, and found nothing
  std::vector<JobVerdict> said;                     ///< by lines that name a rank themselves
  std::vector<std::string> warnings;                ///< NCCL's, the first of each kind
  std::map<std::string, std::string> group_of;      ///< NCCL's "host:pid:comm" to the group's key
  std::map<std::size_t, LoggedSign> signs;          ///< by row of the table of signs
  std::map<std::string, std::string> interface_of;  ///< of NCCL's sockets, by host
  std::set<std::string> asked_for_tuner;            ///< processes that name a tuner of their own
  std::map<std::pair<int, int>, std::string> hops;  ///< "P2P", "SHM" or "NET", the fastest of ranks
  /// A rank's, as far as hops tell; "" = several, as communicators count their ranks by themselves.
  std::map<int, std::string> host_of;
  /// What NCCL says that it has read of its environment: by name and value, by which processes.
  std::map<std::string, std::map<std::string, std::set<std::string>>> settings;
  std::set<std::string> speakers;  ///< processes of NCCL's lines
  int stack_lines_left = 0;        ///< of a crash that is being read

  /// How many ranks hops tell of.
  [[nodiscard]] std::size_t ranks_in_hops() const;
};

/// Text of NCCL (NCCL_DEBUG=INFO, with COLL in NCCL_DEBUG_SUBSYS), of PyTorch's watchdog and of
/// `ncclras`, in any mixture.
void read_log_text(LoggedJob& job, std::string_view text);

/// What one message of NCCL means besides hangs: what it lacks, which way it takes.
void read_log_remark(LoggedJob& job, const std::string& host, const std::string& process,
                     std::string_view message);

/// "NCCL_SOCKET_NTHREADS=4 (2 of 4 processes)": what NCCL has read, each with who, where not all.
std::vector<std::string> settings_read(const LoggedJob& job);

/// The like of a line that is not NCCL's: of launchers, their daemons, and stacks of crashes.
void read_other_remark(LoggedJob& job, std::string_view line);

/// A dump of PyTorch's flight recorder. @param rank whose it is
void read_flight_record(LoggedJob& job, const nlohmann::json& dump, int rank);

/// Parses what RAS answers in JSON, of which NCCL 2.28.9 leaves a comma out where a rank is
/// missing.
/// @returns a discarded value where it is none
nlohmann::json parse_ras_answer(std::string_view text);

/// What NCCL's RAS answers in JSON.
void read_ras_answer(LoggedJob& job, const nlohmann::json& answer);

/// That of ranks some have launched more of a collective than others.
/// @param by_count how many ranks have launched so many, and which, as far as that is known
/// @param stood nothing moved between two answers
struct RanksAtCount {
  std::size_t ranks = 0;
  std::vector<int> named;
};
JobVerdict uneven_counts(const std::string& call,
                         const std::map<std::uint64_t, RanksAtCount>& by_count, bool stood);

/// Pure, from the list of verdict(const LiveJob&), and of these:
///   absent   others have entered a call and it has not: whether it works is not in a log
JobVerdict verdict(const LoggedJob& job);

/// What the log shows to be missing or in the way, each with what to type; whether or not it hangs.
std::vector<JobRemark> remarks(const LoggedJob& job);

}  // namespace dynamiccl
