#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "workers/gpu_queue.hpp"

namespace dynamiccl {

/// Our plugin next to this program, which profiles and tunes NCCL.
std::string plugin_path();

/// Our profiler plugin (plugin/profiler) as a witness of what NCCL applies to a call. Loaded
/// unless DYNAMICCL_NCCL_PROFILER=0 forbids it or another profiler is set; it looks on while a
/// cell's first, untimed call runs, and is off while cells are timed.
class NcclWitness {
 public:
  /// Before NCCL is loaded, as NCCL reads the plugin's name when its first communicator starts.
  void load();
  /// Looks on from the next call.
  void watch() const;
  /// Forgets what was seen so far (a barrier's collective).
  void forget() const;
  /// Stops looking on. @returns "RING/LL, 8 channels, 544 threads", "" when nothing was seen
  [[nodiscard]] std::string conclude() const;
  /// As GpuCalls'.
  void watch_channels(ChannelDetail detail) const;
  [[nodiscard]] std::vector<ChannelTimes> take_channels() const;
  /// The plugin's path, or why it does not look on.
  [[nodiscard]] const std::string& state() const { return state_; }

 private:
  std::string state_ = "off: no GPU on this rank";
  void (*watch_)(int on) = nullptr;
  void (*last_)(char* text, std::size_t bytes) = nullptr;
  void (*channels_)(int detail) = nullptr;
  void (*take_channels_)(std::uint64_t* ns, std::size_t channels) = nullptr;
};

}  // namespace dynamiccl
