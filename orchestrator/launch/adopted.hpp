#pragma once

#include <sys/types.h>

#include <functional>
#include <set>
#include <vector>

#include "containers/processes.hpp"

namespace dynamiccl {

/// While it lives this process becomes the parent of whatever its children leave behind, so that
/// nothing that they have started can leave: neither by a session, a group or an environment of its
/// own, nor by the end of all that stand between. Once at a time.
class Adoption {
 public:
  Adoption();
  ~Adoption();
  Adoption(const Adoption&) = delete;
  Adoption& operator=(const Adoption&) = delete;

  /// All that run below this process and have come since.
  [[nodiscard]] std::vector<ProcessInfo> processes() const;
  /// Takes the ends of those that nobody else waits for.
  static void reap(const std::function<bool(pid_t)>& is_awaited);

 private:
  std::set<pid_t> before_;
};

}  // namespace dynamiccl
