#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/units.hpp"

namespace dynamiccl {

/// A started send or receive; valid until waited for, once.
enum class Request : std::uint32_t {};

/// Messages between the ranks of a launch: all that our own algorithms, parameter servers and
/// control messages need of a library. One thread. Every call throws Error(environment) when the
/// library reports a failure.
class Messages {
 public:
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  virtual ~Messages() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Starts sending bytes of host memory (of the GPU too with CUDA-aware MPI); messages between two
  /// ranks with one tag keep their order.
  virtual Request isend(const void* data, std::size_t bytes, int to, int tag) = 0;
  virtual Request irecv(void* data, std::size_t bytes, int from, int tag) = 0;
  virtual void wait(Request request) = 0;
  /// The same of a request with `peer`. @throws Error(environment) naming it when that takes longer
  /// than `limit`, where the library can tell; the request's buffer is the library's until the end.
  virtual void wait_within(Request request, int /*peer*/, Micros /*limit*/) { wait(request); }
  /// Blocks until one of `from` has sent a message of these bytes; of several that have, any one.
  /// @returns whose it is
  /// @throws Error(environment) naming them when none has within `limit`
  virtual int receive_any(void* data, std::size_t bytes, const std::vector<int>& from, int tag,
                          Micros limit) = 0;
  /// Other ranks may have so much to do between two calls: a library with a limit of its own (Gloo)
  /// waits for so long at least.
  virtual void wait_for_as_long_as(Micros /*limit*/) {}
  /// Lets started sends and receives move on, where the library moves them during calls only (MPI).
  virtual void progress() {}

 protected:
  Messages() = default;
};

/// A rank that was waited for has sent nothing within a limit.
class SilenceError final : public Error {
 public:
  using Error::Error;
};

/// What receive_any() and wait_within() throw.
[[noreturn]] void refuse_silence(const std::vector<int>& from, Micros limit);

/// Sends and receives at once, both waited for.
void exchange(Messages& comm, const void* send, std::size_t send_bytes, int to, void* receive,
              std::size_t receive_bytes, int from, int tag);

/// Dissemination barrier over send/recv: the same for every backend, so that libraries' barriers
/// do not leak into their samples. Costs ceil(log2(size)) message latencies.
void barrier(Messages& comm);
inline constexpr const char* kBarrierName = "dissemination";

/// Element-wise maximum or sum of every rank's values, known to all ranks afterwards.
std::vector<double> max_over_ranks(Messages& comm, std::vector<double> values);
std::vector<double> sum_over_ranks(Messages& comm, std::vector<double> values);

}  // namespace dynamiccl
