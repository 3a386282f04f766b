#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "plugin/profiler/event.hpp"

namespace dynamiccl::nccl_profiler {

/// NCCL's MAXCHANNELS.
inline constexpr std::size_t kMostChannels = 64;

/// What a channel's kernels, proxies and network did, nanoseconds.
struct ChannelBusy {
  std::uint64_t kernel = 0;   ///< its blocks ran on the GPU, summed up
  std::uint64_t proxy = 0;    ///< the host's helper thread had an operation of it to see to
  std::uint64_t network = 0;  ///< of that, a send was under way or a receive waited for its data
};

/// One send or receive of a channel that NCCL's helper thread sees to.
struct ProxyOp : Event {
  unsigned channel = 0;
  std::uint64_t generation = 0;
  bool open = false;
  int on_network = 0;  ///< of its steps
};

/// One chunk of it.
struct ProxyStep : Event {
  std::size_t op = 0;
  std::uint64_t generation = 0;  ///< of the operation when this began
  bool open = false;
  bool on_network = false;
};

/// Sums up what NCCL tells of the channels of all communicators of this process, until it is taken.
/// Times in which several are busy at once count once, but for kernels, each of which holds a
/// multiprocessor of its own. Handles as Session's: slots of rings that are never freed. Any
/// thread.
class ChannelTimes {
 public:
  ChannelTimes();
  static ChannelTimes& instance();

  void add_kernel(unsigned channel, std::uint64_t ns);
  ProxyOp* start_op(unsigned channel, std::uint64_t now_ns);
  /// @returns nullptr for a step of an operation that is gone
  ProxyStep* start_step(const ProxyOp* op, std::uint64_t now_ns);
  /// @param state NCCL's number of what the step does from now on
  void enter(ProxyStep* step, int state, std::uint64_t now_ns);
  void stop(Event* event, std::uint64_t now_ns);
  /// What was since the last call, by channel; what is still under way counts until now.
  std::array<ChannelBusy, kMostChannels> take(std::uint64_t now_ns);

 private:
  /// How many are busy, and since when any is.
  struct Busy {
    int count = 0;
    std::uint64_t since_ns = 0;
    std::uint64_t total_ns = 0;
    void begin(std::uint64_t now_ns);
    void end(std::uint64_t now_ns);
    std::uint64_t take(std::uint64_t now_ns);
  };
  struct Channel {
    std::uint64_t kernel_ns = 0;
    Busy proxy;
    Busy network;
  };
  /// The step's operation; nullptr where one of the two has ended.
  ProxyOp* alive(const ProxyStep& step);
  void put(ProxyStep& step, bool on_network, std::uint64_t now_ns);
  void close(ProxyOp& op, std::uint64_t now_ns);
  void close(ProxyStep& step, std::uint64_t now_ns);

  std::mutex mutex_;
  std::array<Channel, kMostChannels> channels_{};
  std::vector<ProxyOp> ops_;
  std::vector<ProxyStep> steps_;
  std::size_t next_op_ = 0;
  std::size_t next_step_ = 0;
};

}  // namespace dynamiccl::nccl_profiler
