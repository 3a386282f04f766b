#pragma once

#include <string>

namespace dynamiccl {

/// How somebody who waits for a long preparation follows it and ends it.
struct Progress {
  void (*say)(const std::string& line) = nullptr;  ///< one line per step
  /// Asked several times a second; true ends what is under way, with all its processes.
  bool (*interrupted)() = nullptr;
};

}  // namespace dynamiccl
