#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plugin/profiler/event.hpp"
#include "plugin/tuner/communicator_link.hpp"

namespace dynamiccl::nccl_profiler {

/// What was applied to one collective.
struct Applied {
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::array<char, 24> function{};
  std::array<char, 24> datatype{};
  std::array<char, 16> algorithm{};
  std::array<char, 16> protocol{};
  unsigned channels = 0;
  unsigned warps = 0;
};

struct Call : Event {
  Applied applied;
  std::uint64_t generation = 0;
  bool timed = false;     ///< the GPU's times of its channels are to come
  bool open = false;      ///< in use and not yet written
  bool enqueued = false;  ///< stopped: NCCL has queued its kernel
  unsigned channels_done = 0;
  std::uint64_t first_start_ns = 0;
  std::uint64_t last_stop_ns = 0;
  std::uint32_t epoch = 0;   ///< of the tuner's table it ran under
  std::int64_t host_ns = 0;  ///< of the host's monotonic clock when NCCL reported it
};

struct Channel : Event {
  Call* call = nullptr;
  std::uint64_t generation = 0;  ///< of the call when this began
  std::uint64_t start_ns = 0;
  bool open = false;
  unsigned number = 0;
};

/// One communicator's collectives, written as JSON lines. Handles are slots of rings that are never
/// freed while the process lives, so that NCCL may speak of an event after it has stopped it
/// (nccl#1992); what comes too late for its slot is passed over. Any thread may call.
class Session {
 public:
  /// Takes up a communicator; a session that was closed may be opened again.
  void open(std::uint64_t comm_id, int rank, int ranks, int nodes);
  /// Writes what is still open.
  void close();

  /// @param timed NCCL was asked for the GPU's times of this call
  Call* start_call(const Applied& applied, bool timed);
  /// True where this call's successor is to be timed: one of `every` on average, the same ones on
  /// all ranks.
  [[nodiscard]] bool times_next(std::uint64_t sequence, unsigned every);
  /// @returns nullptr for a channel of a call that is gone
  Channel* start_channel(Call* call, std::uint64_t timer_ns, unsigned number);
  void stop(Event* event);
  void stop_channel_timer(Channel* channel, std::uint64_t timer_ns);

 private:
  void close_call(Call& call);
  void write_line(const Call& call);
  void tell_tuner(const Call& call);
  void tell_stream(const Call& call);
  void flush();

  std::mutex mutex_;
  std::uint64_t comm_id_ = 0;
  int rank_ = 0;
  int ranks_ = 0;
  int file_ = -1;
  std::string line_begin_;  ///< what all lines begin with
  std::string buffer_;
  std::shared_ptr<CommunicatorLink> link_;
  std::shared_ptr<CallStream> stream_;  ///< nullptr: there is no shared folder
  std::shared_ptr<Member> member_;      ///< of the same communicator; nullptr: no tuner, or not yet
  std::vector<Call> calls_;
  std::vector<Channel> channels_;
  std::uint64_t next_call_ = 0;
  std::uint64_t next_channel_ = 0;
};

/// Bytes that NCCL's tuner is asked for: the larger of what is sent and received by one rank.
std::uint64_t bytes_of(const Applied& applied, int ranks);
/// Index into the tuner's tables; kCallFunctions for none of them.
std::size_t function_of(const Applied& applied);

/// Sessions of the process; never destroyed, as NCCL's threads may outlive static destructors.
Session* take_session();
void give_back(Session* session);

/// The collective started last in the process, "" = none since the last call of this.
std::string take_last_applied();

}  // namespace dynamiccl::nccl_profiler
