#pragma once

#include <cstddef>
#include <vector>

namespace dynamiccl {

class Device;

/// So many turns of a loop that waits for a GPU go by between two GpuCalls::check_queued().
inline constexpr unsigned kTurnsPerCheck = 4096;

/// Times calls by the GPU and repeats them as a graph: what measuring a cell needs of a stream.
class GpuTimer {
 public:
  virtual ~GpuTimer() = default;
  /// Time stamps by the GPU around the calls between the two marks.
  virtual void mark_start() = 0;
  virtual void mark_stop() = 0;
  /// Microseconds between the marks; after GpuCalls::complete().
  virtual double marked_us() = 0;
  /// Calls between the two are recorded as a CUDA graph instead of being run.
  virtual void begin_capture() = 0;
  virtual void end_capture() = 0;
  /// Queues the recorded graph.
  virtual void replay() = 0;

 protected:
  GpuTimer() = default;
  GpuTimer(const GpuTimer&) = default;
  GpuTimer& operator=(const GpuTimer&) = default;
};

/// Orders calls against computation and each other without the host: what training needs of a
/// stream.
class GpuOrder {
 public:
  virtual ~GpuOrder() = default;
  /// Order against another stream of this GPU (a cudaStream_t), without the host: what is queued
  /// from now on waits for what `stream` holds so far.
  virtual void follow(void* stream) = 0;
  /// Notes how far the queue is, under a small number of the caller's, until it notes that again.
  virtual void note(std::size_t number) = 0;
  /// Adds to the note of that number how far this lane is: a note may be of several lanes.
  virtual void note_also(std::size_t number) = 0;
  /// What `stream` is given from now on waits for that note, all of it.
  virtual void hold_back(void* stream, std::size_t number) = 0;
  /// Notes the time at which the GPU is here on this lane, under a small number; between_us() tells
  /// the microseconds between two of them, after GpuCalls::complete().
  virtual void stamp(std::size_t number) = 0;
  [[nodiscard]] virtual double between_us(std::size_t from, std::size_t to) = 0;
  /// What is called, followed and noted from now on is on this lane, one of those that
  /// GpuCalls::open_lanes() made. Lane 0 before the communicator's owner does anything else.
  virtual void use_lane(std::size_t /*lane*/) {}
  /// That lane's own stream (a cudaStream_t), for kernels between two calls.
  [[nodiscard]] virtual void* own_stream() { return nullptr; }

 protected:
  GpuOrder() = default;
  GpuOrder(const GpuOrder&) = default;
  GpuOrder& operator=(const GpuOrder&) = default;
};

/// What libraries that queue their work on a GPU stream offer besides their calls.
class GpuQueue : public GpuTimer, public GpuOrder {};

/// How long a channel of a library was busy, microseconds. Its kernel holds a multiprocessor.
struct ChannelTimes {
  double kernel_us = 0;
  double proxy_us = 0;    ///< the host's helper thread saw to an operation of it
  double network_us = 0;  ///< of that, data was under way or waited for
};

enum class ChannelDetail { none, kernels, all };

/// Whether and how a library's calls run on a GPU: for who owns buffers and waits for calls.
class GpuCalls {
 public:
  GpuCalls(const GpuCalls&) = delete;
  GpuCalls& operator=(const GpuCalls&) = delete;
  virtual ~GpuCalls() = default;

  /// True when collectives take GPU memory (NCCL, CUDA-aware MPI); the same on every rank.
  [[nodiscard]] virtual bool works_on_gpu() const { return false; }
  /// This rank's GPU where works_on_gpu(); nullptr on a server without one.
  [[nodiscard]] virtual Device* device() { return nullptr; }
  /// Blocks until the calls so far are done on this rank.
  virtual void complete() {}
  /// For who waits for queued calls by other means than complete(): throws Error(environment) when
  /// the library knows that they will never be done. Too costly to ask on every turn of a loop.
  virtual void check_queued() const {}
  /// From now on what the library's channels do is summed up, in as much detail: none, where it has
  /// no channels or does not tell. Costs calls some microseconds.
  virtual void watch_channels(ChannelDetail /*detail*/) {}
  /// Of each channel, since the last call; empty where nobody tells. Kernels are reported some time
  /// after their end.
  virtual std::vector<ChannelTimes> take_channels() { return {}; }
  /// The library's GPU stream, nullptr where calls block.
  [[nodiscard]] virtual GpuQueue* queue() { return nullptr; }
  /// Gives queue() so many lanes, and takes surplus ones away: collectives on different lanes go on
  /// side by side, each over connections of its own. Ranks: all, with the same number; the default
  /// algorithm is chosen.
  /// @returns how many there are, the same on every rank: fewer where the library could not make
  /// more (memory), 1 where its calls cannot go on side by side
  virtual std::size_t open_lanes(std::size_t /*count*/) { return 1; }

 protected:
  GpuCalls() = default;
};

}  // namespace dynamiccl
