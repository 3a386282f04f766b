#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugin/agreement/call_table.hpp"

namespace dynamiccl {

inline constexpr std::uint64_t kCallStreamMagic = 0x44594e43414c4c53ULL;
inline constexpr std::uint32_t kCallStreamVersion = 1;
inline constexpr std::size_t kPredictions = 21;  ///< algorithms x protocols of NCCL's cost table

/// What ranks of MPI tell besides the collectives of CallTable: the numbers after kCallFunctions.
enum ToldCall : std::uint8_t {
  told_alltoall = kCallFunctions + 1,
  told_gather,
  told_scatter,
  told_scan,
  told_barrier,
  told_message,  ///< from one rank to another
  told_end
};

/// One collective that a rank started.
struct CallRecord {
  std::int64_t host_ns = 0;     ///< CLOCK_MONOTONIC of the host when NCCL put it on its queue
  std::uint64_t bytes = 0;      ///< as NCCL's tuner counts them
  std::uint32_t device_ns = 0;  ///< that the GPU took, of MPI the time inside; 0: not timed
  std::uint32_t epoch = 0;      ///< of the table that it was decided by
  /// As in CallTable; kCallFunctions: none of them; from there on as in ToldCall.
  std::uint8_t function = 0;
  std::uint8_t algorithm = CallCell::kAny;
  std::uint8_t protocol = CallCell::kAny;
  std::uint8_t channels = 0;
  std::uint32_t reserved = 0;
  bool operator==(const CallRecord&) const = default;
};
static_assert(sizeof(CallRecord) == 32);

/// Layout of the file: this, then the records as a ring. Lock-free atomics alone: the writer may be
/// killed anywhere and the reader looks on while it writes.
struct CallStreamHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t capacity;
  std::uint64_t communicator;
  std::int32_t rank;
  std::int32_t ranks;
  std::int32_t nodes;         ///< as NCCL counts them
  std::int32_t process;       ///< as the rank itself sees its number
  std::uint64_t process_key;  ///< streams of one process have the same
  std::int64_t opened_ns;
  alignas(64) std::atomic<std::uint64_t> written;  ///< calls so far; the last `capacity` are kept
  std::atomic<std::uint64_t> decided;              ///< calls that the tuner half was asked about
  std::atomic<std::uint32_t> closed;               ///< 1: the communicator was destroyed
  /// By size bin, a bit: `predicted` of it is filled in.
  alignas(64) std::array<std::atomic<std::uint64_t>, kCallFunctions> known;
  /// What NCCL expects of each algorithm and protocol, microseconds; below 0: it has ruled it out.
  std::array<std::array<std::array<float, kPredictions>, kCallBins>, kCallFunctions> predicted;
};

/// A file of the job's shared folder in which one rank tells what it calls, per communicator:
/// bounded, and no system call per entry. One thread at a time may append().
class CallStream {
 public:
  struct Spec {
    std::uint64_t communicator = 0;
    int rank = 0;
    int ranks = 1;
    int nodes = 1;
    std::uint64_t process_key = 0;
  };
  /// 512 KiB of calls: some hundred training steps.
  static constexpr std::uint32_t kCapacity = 16384;

  /// @returns nullptr with what is wrong in `problem`
  static std::unique_ptr<CallStream> make(const std::string& folder, const Spec& spec,
                                          std::string& problem) noexcept;
  /// To look at; the file may be damaged or hostile.
  static std::unique_ptr<CallStream> open(const std::string& path, std::string& problem) noexcept;
  ~CallStream();
  CallStream(const CallStream&) = delete;
  CallStream& operator=(const CallStream&) = delete;

  void append(const CallRecord& record) noexcept {
    const std::uint64_t n = own().written.load(std::memory_order_relaxed);
    records()[n % capacity_] = record;
    own().written.store(n + 1, std::memory_order_release);
  }
  /// NCCL's cost table of a call; kept once per function and size. Any thread of the communicator.
  void note_costs(std::size_t function, std::size_t bin, const float* costs, int algorithms,
                  int protocols) noexcept {
    own().decided.fetch_add(1, std::memory_order_relaxed);
    if ((own().known[function].load(std::memory_order_relaxed) >> bin & 1) == 0)
      keep_costs(function, bin, costs, algorithms, protocols);
  }
  /// A call that nobody has to be asked about.
  void note_decided() noexcept { own().decided.fetch_add(1, std::memory_order_relaxed); }
  void close() noexcept { own().closed.store(1, std::memory_order_release); }

  [[nodiscard]] const CallStreamHeader& header() const {
    return *static_cast<const CallStreamHeader*>(memory_);
  }
  /// Calls from number `from` on, as far as they are still there, oldest first; `from` becomes the
  /// number of the next one.
  [[nodiscard]] std::vector<CallRecord> read(std::uint64_t& from) const;

 private:
  CallStream(void* memory, std::size_t bytes, std::uint32_t capacity)
      : memory_(memory), bytes_(bytes), capacity_(capacity) {}
  [[nodiscard]] CallStreamHeader& own() { return *static_cast<CallStreamHeader*>(memory_); }
  [[nodiscard]] CallRecord* records() const;
  void keep_costs(std::size_t function, std::size_t bin, const float* costs, int algorithms,
                  int protocols) noexcept;

  void* memory_;
  std::size_t bytes_;
  std::uint32_t capacity_;
};

/// Paths of the streams that lie in a folder, sorted.
std::vector<std::string> call_streams_in(const std::string& folder);

}  // namespace dynamiccl
