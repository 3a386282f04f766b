#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/units.hpp"
#include "core/vocabulary.hpp"

namespace dynamiccl {

/// A started send or receive; valid until waited for, once.
enum class Request : std::uint32_t {};

/// What a library is asked to do, as far as deciding whether it can needs to know.
struct CallShape {
  Collective collective = Collective::allreduce;
  DataType datatype = DataType::float32;
  std::size_t count = 0;  ///< elements as the collective's call counts them
  bool in_place = false;
  std::string algorithm = "library";
  std::map<std::string, std::string> knobs;
};

/// The chosen algorithm cannot run with these arguments. Thrown by the first such call, on every
/// rank, before anything was sent: the ranks can go on with another call.
class NotApplicable : public Error {
 public:
  explicit NotApplicable(const std::string& message) : Error(ErrorKind::input, message) {}
};

/// All ranks of a launch joined through one library: what a backend implements (C-06). Sums only.
///
/// Buffers are the memory the library works on (host memory for MPI and Gloo). Every rank makes
/// the same calls in the same order; calls block until the rank's buffers may be reused.
/// In place: `in == out` for allreduce, reduce and alltoall; `in == out + rank * count` elements
/// for allgather and gather (root); `out == in + rank * count` for reduce_scatter.
/// One thread. Every call throws Error(environment) when the library reports a failure.
class Communicator {
 public:
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// What the loaded library calls itself, with its version, in one line.
  [[nodiscard]] virtual std::string library() const = 0;
  /// Bare version, "4.1.4".
  [[nodiscard]] virtual std::string library_version() const = 0;

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

  /// Starts sending bytes; messages between two ranks with one tag keep their order.
  virtual Request isend(const void* data, std::size_t bytes, int to, int tag) = 0;
  virtual Request irecv(void* data, std::size_t bytes, int from, int tag) = 0;
  virtual void wait(Request request) = 0;

  /// Leaves the job in order. Ranks: all.
  virtual void finalize() = 0;
  /// Ends every rank of the job as fast as the library can, without waiting for them.
  [[noreturn]] virtual void abort(int exit_code) = 0;

 protected:
  Communicator() = default;
};

/// Sends and receives at once, both waited for.
void exchange(Communicator& comm, const void* send, std::size_t send_bytes, int to, void* receive,
              std::size_t receive_bytes, int from, int tag);

/// Dissemination barrier over send/recv: the same for every backend, so that libraries' barriers
/// do not leak into their samples. Costs ceil(log2(size)) message latencies.
void barrier(Communicator& comm);
inline constexpr const char* kBarrierName = "dissemination";

/// Element-wise maximum or sum of every rank's values, known to all ranks afterwards.
std::vector<double> max_over_ranks(Communicator& comm, std::vector<double> values);
std::vector<double> sum_over_ranks(Communicator& comm, std::vector<double> values);

}  // namespace dynamiccl
