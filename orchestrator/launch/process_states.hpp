#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

/// State of each process that carries the marker, in this variable of its environment or in its
/// arguments: "rank 1, dynamiccl-worker (pid 77): stopped, in do_signal_stop". Reads /proc; others'
/// processes are left out.
std::vector<std::string> states_of_processes(const char* variable, const std::string& marker);

}  // namespace dynamiccl
