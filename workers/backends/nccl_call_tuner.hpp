#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "workers/library_calls.hpp"

namespace dynamiccl {

/// Our tuner plugin in this process, given by the trainer what its next all-reduces run under:
/// algorithm, protocol and cap of channels change from call to call, on the communicators that are
/// there. Every rank says the same before the same call.
class NcclCallTuner {
 public:
  /// Before NCCL is loaded, as it reads the plugin's name when its first communicator starts.
  /// @throws Error(environment) where the plugin is missing or another tuner was asked for
  void load(const std::string& path);
  /// After the first all-reduce, on all ranks alike.
  /// @throws Error(environment) where NCCL has not asked the plugin: nothing would be set
  void require_asked() const;
  [[nodiscard]] bool loaded() const { return choose_ != nullptr; }
  /// Whether these knobs are set by call: "protocol" and "channels" alone.
  [[nodiscard]] static bool is_per_call(const CallShape& shape);
  /// Why NCCL would leave such a shape alone; after the first all-reduce.
  [[nodiscard]] std::optional<std::string> unsupported(const CallShape& shape) const;
  /// @param shape as unsupported() has passed it
  void choose(const CallShape& shape);
  /// NCCL's own choice again. @returns false when it was in force
  bool clear();

 private:
  void (*take_over_)(int on) = nullptr;
  int (*choose_)(int function, const char* algorithm, const char* protocol, int channels) = nullptr;
  std::uint32_t (*possible_)(int function) = nullptr;
  bool in_force_ = false;
};

}  // namespace dynamiccl
