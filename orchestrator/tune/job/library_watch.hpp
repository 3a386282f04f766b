#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// Sees from what a start's processes have mapped that they communicate without NCCL: some have a
/// library of MPI or Gloo, and for a while none has NCCL, CUDA, or anything that may yet load them.
class LibraryWatch {
 public:
  /// @param marker of the start's processes (ProcessOptions::marker)
  /// @param gpu_is_here without one no NCCL comes, so that a shorter wait will do
  LibraryWatch(std::string marker, bool gpu_is_here)
      : marker_(std::move(marker)), gpu_is_here_(gpu_is_here) {}

  /// The library once that is sure; nullopt before. Some milliseconds, at most four times a second.
  std::optional<Backend> sure();
  /// What was seen last, sure or not.
  [[nodiscard]] std::optional<Backend> seen() const { return seen_; }

 private:
  using Clock = std::chrono::steady_clock;
  void look();

  std::string marker_;
  bool gpu_is_here_;
  bool may_load_more_ = false;  ///< an interpreter, or PyTorch
  std::optional<Backend> seen_;
  Clock::time_point looked_{};
  Clock::time_point since_{};
};

/// Why no rank that such a command of an MPI's launcher starts could be watched by a library that
/// is preloaded into it; "": nothing is known to be in the way.
std::string why_unwatchable(const std::vector<std::string>& argv);

/// Is this the launcher of an MPI?
bool is_mpi_launcher(const std::string& program);

}  // namespace dynamiccl
