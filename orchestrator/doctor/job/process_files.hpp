#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "orchestrator/doctor/job/live_job.hpp"

namespace dynamiccl {

/// What /proc says of a process, by any user who may see it.
struct ProcessStat {
  pid_t pid = 0;
  pid_t parent = 0;
  std::string name;
  char state = '?';
  int nice = 0;
  int wait_status = 0;  ///< as of waitpid, of one that is over; 0 too where it may not be seen
};

/// All processes that this one can see.
std::vector<ProcessStat> all_processes();

/// Variables that a process was started with; empty where they may not be read.
std::map<std::string, std::string> variables_of(pid_t pid);

/// Those of `all` that are below `root`, itself among them.
std::vector<ProcessStat> tree_of(pid_t root, const std::vector<ProcessStat>& all);

/// State, times, system call and bytes of a process, without its stack. Stops nothing.
RankLook look_at_process(pid_t pid, const std::vector<ProcessStat>& all);

/// Communication libraries that it has mapped, by the files in its own root.
std::vector<LoadedLibrary> loaded_libraries(pid_t pid);

/// TCP connections of it on which nothing is acknowledged.
std::vector<StuckSocket> stuck_sockets(pid_t pid);

/// The number that a process has in its own PID namespace.
pid_t pid_inside(pid_t pid);

/// Equal in every look at this process, from whatever PID namespace: the machine's boot, when the
/// process began, its innermost number. "" where it is over.
std::string process_identity(pid_t pid);

/// Fills what does not change while one looks: libraries, namespaces, limits, /dev/shm, settings.
void read_surroundings(LiveRank& rank);

}  // namespace dynamiccl
