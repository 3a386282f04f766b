#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dynamiccl {

/// State of each process that carries the marker, in this variable of its environment or in its
/// arguments: "rank 1, dynamiccl-worker (pid 77): stopped, in do_signal_stop". Reads /proc; others'
/// processes are left out.
std::vector<std::string> states_of_processes(const char* variable, const std::string& marker);

/// Processes of this user or root that carry it as that variable: what ends a start must be of it.
std::vector<pid_t> pids_of_processes(const char* variable, const std::string& marker);

/// Whether a launcher gave it the number of a rank; what a rank has started has that too.
bool has_rank(pid_t pid);
/// Whether a signal has stopped it (SIGSTOP, SIGTSTP), and nothing has continued it since. Neither
/// a process that waits for a core or for a message is, nor one that a debugger holds.
bool is_stopped(pid_t pid);

/// How often its first thread has left a core: another number says that it was continued meanwhile.
std::uint64_t switches_of(pid_t pid);
/// Whether it is there and has not ended; a zombie has.
bool is_alive(pid_t pid);
/// Whether any child of its threads is; true where the kernel does not say.
bool has_living_child(pid_t pid);

}  // namespace dynamiccl
