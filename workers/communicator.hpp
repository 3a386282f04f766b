#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

class Device;

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

/// What a library itself tells of the way its data takes.
struct TransportClaim {
  std::string transport;  ///< as in TransportRecord
  std::string evidence;
  nlohmann::json details = nlohmann::json::object();
};

/// So many turns of a loop that waits for a GPU go by between two Communicator::check_queued().
inline constexpr unsigned kTurnsPerCheck = 4096;

/// What libraries that queue their work on a GPU stream offer beside their calls.
class GpuQueue {
 public:
  virtual ~GpuQueue() = default;
  /// Time stamps by the GPU around the calls between the two marks.
  virtual void mark_start() = 0;
  virtual void mark_stop() = 0;
  /// Microseconds between the marks; after Communicator::complete().
  virtual double marked_us() = 0;
  /// Calls between the two are recorded as a CUDA graph instead of being run.
  virtual void begin_capture() = 0;
  virtual void end_capture() = 0;
  /// Queues the recorded graph.
  virtual void replay() = 0;
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
  /// the microseconds between two of them, after Communicator::complete().
  virtual void stamp(std::size_t number) = 0;
  [[nodiscard]] virtual double between_us(std::size_t from, std::size_t to) = 0;
  /// What is called, followed and noted from now on is on this lane, one of those that
  /// Communicator::open_lanes() made. Lane 0 before the communicator's owner does anything else.
  virtual void use_lane(std::size_t /*lane*/) {}

 protected:
  GpuQueue() = default;
  GpuQueue(const GpuQueue&) = default;
  GpuQueue& operator=(const GpuQueue&) = default;
};

/// Elements this rank exchanges with each rank, and where they lie: packed, in rank order. Sums
/// stay within an int, which is what MPI counts with.
struct PairCounts {
  std::vector<int> send, send_at;
  std::vector<int> receive, receive_at;
};

/// All ranks of a launch joined through one library: what a backend implements (C-06). Sums only.
///
/// Buffers are the memory the library works on (host memory for MPI and Gloo, the GPU's for NCCL
/// and CUDA-aware MPI). Every rank makes the same calls in the same order; calls block until the
/// rank's buffers may be reused, or queue their work until complete().
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
  /// MPI's level of thread support, in small letters ("single"); "" with libraries that have none.
  [[nodiscard]] virtual std::string thread_level() const { return ""; }

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

  /// Starts sending bytes of host memory (of the GPU too with CUDA-aware MPI); messages between two
  /// ranks with one tag keep their order.
  virtual Request isend(const void* data, std::size_t bytes, int to, int tag) = 0;
  virtual Request irecv(void* data, std::size_t bytes, int from, int tag) = 0;
  virtual void wait(Request request) = 0;
  /// What the library that carries isend() and irecv() calls itself: not library() where that
  /// sends no host memory (NCCL).
  [[nodiscard]] virtual std::string carrier() const { return library(); }
  /// Lets started sends and receives move on, where the library moves them during calls only (MPI).
  virtual void progress() {}

  /// True when collectives take GPU memory (NCCL, CUDA-aware MPI); the same on every rank.
  [[nodiscard]] virtual bool works_on_gpu() const { return false; }
  /// This rank's GPU where works_on_gpu(); nullptr on a server without one.
  [[nodiscard]] virtual Device* device() { return nullptr; }
  /// The calling thread makes the calls from now on, until the owner's next one.
  void enter_thread();
  /// Blocks until the calls so far are done on this rank.
  virtual void complete() {}
  /// For who waits for queued calls by other means than complete(): throws Error(environment) when
  /// the library knows that they will never be done. Too costly to ask on every turn of a loop.
  virtual void check_queued() const {}
  /// The library's GPU stream, nullptr where calls block.
  [[nodiscard]] virtual GpuQueue* queue() { return nullptr; }
  /// Gives queue() so many lanes, and takes surplus ones away: collectives on different lanes go on
  /// side by side, each over connections of its own. Ranks: all, with the same number; the default
  /// algorithm is chosen.
  /// @returns how many there are, the same on every rank: fewer where the library could not make
  /// more (memory), 1 where its calls cannot go on side by side
  virtual std::size_t open_lanes(std::size_t /*count*/) { return 1; }
  /// Sends to one rank while receiving from another, in buffers of the library's kind of memory.
  virtual void send_receive(const void* send, int to, void* receive, int from, std::size_t bytes);
  /// Makes the ranks leave at the same time. Ranks: all.
  virtual void synchronise();
  [[nodiscard]] virtual std::string barrier_name() const;
  /// What the calls since the last take_phases() spent outside the collective; nullopt where the
  /// library does nothing else.
  virtual std::optional<PhaseTimes> take_phases() { return std::nullopt; }
  /// What the last collective really ran, where the library tells after the call.
  [[nodiscard]] virtual std::optional<std::string> applied() { return std::nullopt; }
  /// Ranks: all, as they agree on one name.
  [[nodiscard]] virtual std::optional<TransportClaim> transport_claim() { return std::nullopt; }

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

/// The root's bytes, a multiple of 4, to all ranks; in host memory whatever the library works on.
void broadcast_host(Communicator& comm, void* data, std::size_t bytes, int root);

/// Element-wise maximum or sum of every rank's values, known to all ranks afterwards.
std::vector<double> max_over_ranks(Communicator& comm, std::vector<double> values);
std::vector<double> sum_over_ranks(Communicator& comm, std::vector<double> values);

}  // namespace dynamiccl
