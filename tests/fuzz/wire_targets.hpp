#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// Readers of what peers send: their inputs are bytes of a connection.
namespace dynamiccl::fuzz {

/// First byte of an input of "record-frames": what comes before the frames behind it, with the
/// launch's own secret.
enum class RankSays : char { nothing, writes, reads, meets };

/// Frames over TCP to the server of a launch's records; every stored line must be one line.
void read_record_frames(const std::string& input);

inline constexpr std::uint32_t kRingCells = 4;
inline constexpr std::size_t kRingCellBytes = 4096;

/// What the other process does to the ring, or this one to the connection.
struct RingStep {
  enum What : std::uint8_t { post, write, test, kinds };
  std::uint8_t what = post;
  std::uint8_t cell = 0;
  std::uint16_t turns = 0;  ///< write: the cell's turn is cell + this; 0: full
  std::uint32_t bytes = 0;  ///< post: of the message; write: of the piece
  std::uint64_t total = 0;
};
static_assert(sizeof(RingStep) == 16);

/// A packet as hello, then a byte that says which end this is, then steps. Nothing outside a posted
/// message may be written.
void read_transport_ring(const std::string& input);

}  // namespace dynamiccl::fuzz
