#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dynamiccl {

/// What ranks and the orchestrator say to each other where no folder joins them: frames over TCP,
/// between machines of one byte order. A header, then `length` bytes of payload.
enum class FrameKind : std::uint32_t {
  hello,       ///< "TOKEN WRITER MODE"; MODE: read, refuse or append (RecordWriter::Existing)
  welcome,     ///< sequence: of the last line that is stored of this writer
  refused,     ///< a sentence for people; the connection ends
  run,         ///< run.json
  file,        ///< "NAME\n" and its bytes: what lies next to run.json, or a rank's decisions
  begun,       ///< no further file follows
  line,        ///< sequence counts from 1 for each writer; a record without its line end
  last_words,  ///< the same without a sequence, from a rank that ends; stored where it is no copy
  ack,         ///< sequence: all lines up to it are stored
  bye,         ///< the writer has no further line; and the answer to it
  set,         ///< "KEY\n" and a value of the ranks' rendezvous
  get,         ///< KEY
  value,       ///< of KEY
  absent       ///< nobody has set KEY yet
};
inline constexpr FrameKind kLastFrameKind = FrameKind::absent;

struct FrameHeader {
  static constexpr std::uint32_t kMagic = 0x44594e52;
  std::uint32_t magic = kMagic;
  FrameKind kind = FrameKind::hello;
  std::int32_t rank = -1;  ///< -1: not known yet
  std::uint32_t reserved = 0;
  std::uint64_t sequence = 0;
  std::uint64_t length = 0;
};
static_assert(sizeof(FrameHeader) == 32);

/// A record is as long as its samples are many; what is longer is nobody's record.
inline constexpr std::uint64_t kMostLineBytes = std::uint64_t{64} << 20;
/// A table next to run.json, or a rank's decisions; its frame has the name in front.
inline constexpr std::uint64_t kMostFileBytes = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kMostFileNameBytes = 256;
/// run.json and what lies next to it, all together.
inline constexpr std::uint64_t kMostRunBytes = std::uint64_t{256} << 20;
/// The names and headers of so many files as may be, on top of it.
inline constexpr std::uint64_t kMostRunHeaderBytes = std::uint64_t{16} << 20;
/// Of any frame's payload.
inline constexpr std::uint64_t kMostPayloadBytes =
    (kMostLineBytes > kMostFileBytes ? kMostLineBytes : kMostFileBytes) + kMostFileNameBytes;
/// Before the other end has said the token.
inline constexpr std::uint64_t kMostHelloBytes = 256;
inline constexpr std::uint64_t kMostStoredValue = std::uint64_t{1} << 20;

/// The launch's secret stands in it on the nodes; it is in no argument and no record.
inline constexpr const char* kRecordsToken = "DYNAMICCL_RECORDS_TOKEN";
/// Begins what a rank is given in run.json's place: "tcp://ADDRESS,ADDRESS:PORT".
inline constexpr std::string_view kRecordsScheme = "tcp://";

inline std::string frame(FrameHeader header, std::string_view payload = {}) {
  header.length = payload.size();
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes += payload;
  return bytes;
}

}  // namespace dynamiccl
