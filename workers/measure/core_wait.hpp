#pragma once

#include <map>
#include <string>
#include <vector>

namespace dynamiccl {

/// How long this process's threads were ready to run and had no core: the kernel's run delay,
/// summed over them. Source: Linux, Documentation/scheduler/sched-stats.rst,
/// "/proc/<pid>/schedstat".
class CoreWait {
 public:
  /// @param tasks folder with one folder per thread
  explicit CoreWait(std::string tasks = "/proc/self/task");
  ~CoreWait();
  CoreWait(const CoreWait&) = delete;
  CoreWait& operator=(const CoreWait&) = delete;

  /// Takes in threads that have begun since. What they waited before changes the sum: never between
  /// two readings that are compared.
  void find_threads();
  /// Half a microsecond per thread. @returns microseconds since the threads began
  double read_us();
  /// Adds what was waited since the reading `since_us`, per call; nothing where it is not known.
  void add_since(double since_us, int calls, std::vector<double>& waited_us);
  /// false: the kernel does not tell.
  [[nodiscard]] bool known() const { return !threads_.empty(); }

 private:
  struct Thread {
    int file = -1;
    double waited_us = 0;  ///< of an ended one what it had waited when it was read last
  };
  std::string tasks_;
  std::map<std::string, Thread> threads_;  ///< by thread id
};

}  // namespace dynamiccl
