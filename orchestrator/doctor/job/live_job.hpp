#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dynamiccl {

/// What a thread's stack says of where it is, by the outermost name that a communication library
/// has in it.
enum class CallKind {
  outside,         ///< in none
  start,           ///< MPI_Init and the like: a library comes up
  collective,      ///< every rank of a communicator has to come
  point_to_point,  ///< messages, and waiting for requests of any kind
  gpu,             ///< waits for its GPU, where a collective may be what it does not get through
  finish           ///< MPI_Finalize and the like
};

/// One look at a rank's stack.
struct StackLook {
  bool read = false;
  CallKind kind = CallKind::outside;
  std::string call;        ///< "MPI_Allreduce"; "" outside
  std::string place;       ///< outside: the innermost function with a name, and its module
  bool in_python = false;  ///< an interpreter of Python is below it
  /// Digest of the return addresses from the call outwards, and of what its callers hold in memory
  /// there: while a thread stays within one call neither can change. 0 = unknown.
  std::uint64_t chain = 0;
  std::uint64_t memory = 0;
};

/// One look at a rank: /proc, and a stack in most of them.
struct RankLook {
  double at_s = 0;  ///< since the first look at the job
  char state = '?';
  std::string kernel_call;  ///< what its main thread waits in, "in a read of /data/x"; "" = nothing
  double cpu_s = 0;         ///< used so far by it and what it has started
  double run_s = 0;         ///< its main thread was on a core, so far
  double wait_s = 0;        ///< its main thread was ready and had no core, so far
  std::uint64_t io_bytes = 0;   ///< it has read and written so far
  double throttled_s = 0;       ///< its control group was held back so far
  std::uint64_t throttled = 0;  ///< periods in which it was
  std::uint64_t launched = 0;   ///< collectives so far, by NCCL's RAS; 0 = unknown
  double gpu_memory = -1;  ///< part of the last moments in which its GPU's memory was in use, by
                           ///< NVML; below 0 = unknown
  StackLook stack;
};

/// A TCP connection of a rank with something wrong: bytes or a connection request that nobody
/// acknowledges.
struct StuckSocket {
  std::string peer;  ///< "10.0.0.2:41234"
  bool connecting = false;
  std::uint64_t queued_bytes = 0;
  int retransmits = 0;  ///< of the same bytes, since the last acknowledgement
};

/// A communication library that a process has mapped.
struct LoadedLibrary {
  std::string name;  ///< "nccl"
  std::string path;
  std::string build_id;  ///< "" = unknown
};

/// A collective of one size that a rank has begun while its calls were watched.
struct BegunCall {
  std::string name;         ///< "MPI_Allreduce"
  std::uint64_t bytes = 0;  ///< as bytes_of_call says; 0 = unknown, or none
  unsigned times = 0;
  double seconds = 0;  ///< for which they were watched
};

struct LiveRank {
  int rank = 0;
  pid_t pid = 0;
  std::string host;  ///< where the process id is its own; "" = this machine
  std::string program;
  /// Equal in all looks at this process, from whatever PID namespace; "" = unknown.
  std::string identity;
  int nice = 0;
  pid_t inner_pid = 0;        ///< its number in its own PID namespace
  bool on_gpu = false;        ///< it has CUDA or a library of collectives on GPUs loaded
  std::string slow_settings;  ///< variables of NCCL that forbid the fast ways, as it was started
  std::string stack_problem;  ///< why its stack cannot be read; "" = it was, or nobody tried
  std::vector<RankLook> looks;
  std::vector<BegunCall> calls;      ///< empty where none was seen
  std::vector<StuckSocket> sockets;  ///< at the last look
  std::vector<LoadedLibrary> libraries;
  std::string user_namespace;
  std::string ipc_namespace;    ///< the same of shared memory
  std::string only_core;        ///< the one core that it may run on; "" = several
  std::uint64_t shm_bytes = 0;  ///< size of its /dev/shm; 0 = unknown
  std::uint64_t shm_free_bytes = 0;
  std::size_t nccl_files = 0;  ///< of /dev/shm, which NCCL removes once its ranks have met
  std::uint64_t nccl_files_bytes = 0;
  std::uint64_t memlock_bytes = 0;  ///< limit; the largest number = none
};

/// A process that the job's launcher has started and that is over, though nobody has collected it.
struct EndedProcess {
  pid_t pid = 0;
  std::string program;
  int exit_code = 0;
  int signal = 0;
  std::string host = {};  ///< as a rank's
};

/// One answer of NCCL's RAS on one communicator.
struct RasAnswer {
  struct Missing {
    std::string where;  ///< "process 809 on node 10.0.0.1"
    bool dead = false;
    bool unresponsive = false;
  };
  /// Process ids as the processes themselves see them.
  struct Process {
    std::string host;
    pid_t pid = 0;
  };
  std::string communicator;
  std::map<int, std::map<std::string, std::uint64_t>> launched;  ///< by rank and collective
  std::map<int, Missing> missing;
  std::map<int, Process> processes;  ///< of both
  int size = 0;                      ///< of the communicator; 0 = not given
};

struct LiveJob {
  int world = 0;  ///< ranks that the launcher has named to them; 0 = unknown
  /// "MASTER_PORT=29500", of all its ranks; "" = unknown. Two markers are two jobs, equal ones
  /// prove nothing: 29500 is PyTorch's default.
  std::string marker;
  bool all_here = false;        ///< wherever they were started was looked at
  bool partly = false;          ///< some of them may be where nobody could look
  bool has_rdma = false;        ///< the machine has RDMA devices
  std::string calls_problem;    ///< why sizes of calls, or which, are not seen; "" = none
  double seconds = 0;           ///< from the first look to the last
  std::vector<LiveRank> ranks;  ///< by rank
  std::vector<EndedProcess> ended;
  std::vector<RasAnswer> ras;  ///< the last answer on each communicator, by this job's ranks
  std::string ras_problem;     ///< why there is none; "" = there is, or nobody asked
  std::vector<int> gone;       ///< ranks that NCCL's RAS misses and whose process is over
};

enum class JobState { running, waiting, slow, hung, unknown };

/// What is said of a job: the one verdict that fits, and what it rests on.
struct JobVerdict {
  JobState state = JobState::unknown;
  std::string id;          ///< one of a fixed list, see verdict.cpp
  std::vector<int> ranks;  ///< whom it is about; empty = no rank more than another
  std::string says;
  std::vector<std::string> evidence;
  std::vector<std::string> next;  ///< what to type or to look at
};

/// What is worth knowing besides the state: a cause that need not show yet.
struct JobRemark {
  std::string id;
  std::string says;
  std::string fix;
};

}  // namespace dynamiccl
