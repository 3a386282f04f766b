#pragma once

#include <string>

// Readers of what peers send: their inputs are bytes of a connection.
namespace dynamiccl::fuzz {

/// First byte of an input of "record-frames": what comes before the frames behind it, with the
/// launch's own secret.
enum class RankSays : char { nothing, writes, reads, meets };

/// Frames over TCP to the server of a launch's records; every stored line must be one line.
void read_record_frames(const std::string& input);

}  // namespace dynamiccl::fuzz
