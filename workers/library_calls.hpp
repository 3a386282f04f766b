#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "core/wire/work_settings.hpp"

namespace dynamiccl {

/// What a library is asked to do, as far as deciding whether it can needs to know.
struct CallShape {
  Collective collective = Collective::allreduce;
  DataType datatype = DataType::float32;
  std::size_t count = 0;  ///< elements as the collective's call counts them
  bool in_place = false;
  std::string algorithm = "library";
  std::map<std::string, std::string> knobs;
  ReduceOp op = ReduceOp::sum;
};

/// The chosen algorithm cannot run with these arguments. Thrown by the first such call, on every
/// rank, before anything was sent: the ranks can go on with another call.
class NotApplicable : public Error {
 public:
  explicit NotApplicable(const std::string& message) : Error(ErrorKind::input, message) {}
};

/// Parts of a call's time that are not the library's collective, microseconds.
struct PhaseTimes {
  double compute_us = 0;  ///< the server's own reduction
  double h2d_us = 0;      ///< copies from host memory to the GPU
  double d2h_us = 0;      ///< copies from the GPU to host memory
  double send_us = 0;     ///< between chief worker and a server without a GPU
  PhaseTimes& operator+=(const PhaseTimes& other) {
    compute_us += other.compute_us;
    h2d_us += other.h2d_us;
    d2h_us += other.d2h_us;
    send_us += other.send_us;
    return *this;
  }
};

/// Elements this rank exchanges with each rank, and where they lie: packed, in rank order. Sums
/// stay within an int, which is what MPI counts with. Of an all-gather whose parts differ `receive`
/// says them all.
struct PairCounts {
  std::vector<int> send, send_at;
  std::vector<int> receive, receive_at;
};

/// A library's collectives and how they are chosen: what measuring a cell and summing gradients
/// need. Reductions are sums, or what `choose` named last.
///
/// Buffers are the memory the library works on (host memory for MPI and Gloo, the GPU's for NCCL
/// and CUDA-aware MPI). Every rank makes the same calls in the same order; calls block until the
/// rank's buffers may be reused, or queue their work until GpuCalls::complete().
/// In place: `in == out` for allreduce, reduce and alltoall; `in == out + rank * count` elements
/// for allgather and gather (root); `out == in + rank * count` for reduce_scatter and scatter
/// (root); `in == out + receive_at[rank]` for allgatherv.
class LibraryCalls {
 public:
  LibraryCalls(const LibraryCalls&) = delete;
  LibraryCalls& operator=(const LibraryCalls&) = delete;
  virtual ~LibraryCalls() = default;

  /// Why this library cannot do it; nullopt when it can. The answer is the same on every rank.
  [[nodiscard]] virtual std::optional<std::string> unsupported(const CallShape& shape) const = 0;
  /// Names `choose` takes for this collective, "library" first.
  [[nodiscard]] virtual std::vector<std::string> algorithms(Collective collective) const = 0;
  /// Makes the following calls of `shape.collective` use its algorithm and knobs, until the next
  /// choose. Ranks: all, with the same shape.
  /// @returns what will run, as far as it can be known
  virtual std::string choose(const CallShape& shape) = 0;

  virtual void broadcast(void* data, std::size_t count, DataType type, int root) = 0;
  /// Only the root's `out` is written.
  virtual void reduce(const void* in, void* out, std::size_t count, DataType type, int root) = 0;
  virtual void allreduce(const void* in, void* out, std::size_t count, DataType type) = 0;
  /// `count` elements from each rank; `out` holds size() * count in rank order.
  virtual void allgather(const void* in, void* out, std::size_t count, DataType type) = 0;
  /// `in` holds size() * count elements; each rank gets `count`.
  virtual void reduce_scatter(const void* in, void* out, std::size_t count, DataType type) = 0;
  /// `count` elements from each rank; only the root's `out` is written.
  virtual void gather(const void* in, void* out, std::size_t count, DataType type, int root) = 0;
  /// `count` elements for each pair of ranks.
  virtual void alltoall(const void* in, void* out, std::size_t count, DataType type) = 0;
  /// A number of elements of its own for each pair of ranks. Never in place.
  virtual void alltoallv(const void* in, void* out, const PairCounts& counts, DataType type) = 0;

  /// What a library without them leaves as they are: its algorithms() names none.
  virtual void allgatherv(const void* /*in*/, void* /*out*/, const PairCounts& /*counts*/,
                          DataType /*type*/) {
    refuse_call();
  }
  /// The root's `in` holds size() * count elements; each rank gets `count`.
  virtual void scatter(const void* /*in*/, void* /*out*/, std::size_t /*count*/, DataType /*type*/,
                       int /*root*/) {
    refuse_call();
  }
  virtual void library_barrier() { refuse_call(); }

  /// Sends to one rank while receiving from another, in buffers of the library's kind of memory.
  virtual void send_receive(const void* send, int to, void* receive, int from,
                            std::size_t bytes) = 0;
  /// What the calls since the last take_phases() spent outside the collective; nullopt where the
  /// library does nothing else.
  virtual std::optional<PhaseTimes> take_phases() { return std::nullopt; }
  /// What the last collective really ran, where the library tells after the call.
  [[nodiscard]] virtual std::optional<std::string> applied() { return std::nullopt; }

 protected:
  LibraryCalls() = default;
  [[noreturn]] static void refuse_call() {
    throw Error(ErrorKind::bug, "a collective was called that algorithms() does not offer");
  }
};

}  // namespace dynamiccl
