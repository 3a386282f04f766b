#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "orchestrator/doctor/job/live_job.hpp"

namespace dynamiccl {

/// One frame of a stack as eu-stack or gdb prints it, from the innermost on.
struct Frame {
  std::uint64_t address = 0;
  std::string name;  ///< "" = has none
  std::string module;
};

/// Stacks of a process's threads; the first is its main thread's.
using Threads = std::vector<std::vector<Frame>>;

/// What eu-stack --module or gdb's "thread apply all bt" has printed.
Threads read_stacks(const std::string& printed);

/// The thread that says where a rank is, in words; chain and memory are left at 0 where it is
/// outside. `caller` is the frame that called the library, 0 = none.
struct PlaceInCode {
  StackLook look;
  std::uint64_t caller = 0;
  bool main_thread = false;
};
PlaceInCode place_in_code(const Threads& threads);

/// The kind of call behind a function's name, and the name that its users know it by.
struct KnownCall {
  CallKind kind = CallKind::outside;
  std::string name;
};
KnownCall call_named(std::string_view function);

/// Takes stacks by eu-stack, or by gdb where that is not there or the process has other files.
/// A process stands for some milliseconds at each.
class StackReader {
 public:
  StackReader();
  /// Why none can be taken of any process; "" = they can.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  /// Whether gdb has to take this one's, for which the process stands a second or two.
  [[nodiscard]] bool takes_long(pid_t pid) const;
  /// @param main_alone only its main thread's, where eu-stack takes it: names of dozens of threads
  /// in
  ///        libraries of a million names take seconds to find
  /// @param why receives the reason where it is not read
  StackLook look(pid_t pid, bool main_alone, std::string& why) const;

 private:
  std::string eu_stack_;
  std::string gdb_;
  std::string problem_;
};

}  // namespace dynamiccl
