#pragma once

#include <sys/types.h>

#include <string>

namespace dynamiccl {

/// The program that sums a launch's chunks where this program runs (workers/aggregation), for as
/// long as this object lives. It ends too when this program does, however that ends: it reads from
/// a pipe whose other end is held here alone.
class AggregatorProcess {
 public:
  /// @param folder of the workers' programs
  /// @throws Error(environment) when it does not start
  AggregatorProcess(const std::string& folder, int ranks);
  ~AggregatorProcess();
  AggregatorProcess(const AggregatorProcess&) = delete;
  AggregatorProcess& operator=(const AggregatorProcess&) = delete;

  /// Where ranks find it: "ADDRESS,ADDRESS...:PORT/KEY".
  [[nodiscard]] const std::string& place() const { return place_; }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int held_ = -1;  ///< our end of its standard input
  std::string place_;
};

}  // namespace dynamiccl
