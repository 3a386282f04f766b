#include "workers/aggregation/aggregation_link.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <cstring>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

constexpr int kNothing = INT_MIN;  // exponent of zeros
constexpr int kNotFinite = INT_MAX;

/// The least e with |x| < 2^e for all.
int exponent_of(const float* values, std::size_t count) {
  std::uint32_t greatest = 0;  // magnitudes are ordered as their bits are
  for (std::size_t i = 0; i < count; ++i)
    greatest = std::max(greatest, std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffU);
  const auto magnitude = std::bit_cast<float>(greatest);
  if (!std::isfinite(magnitude)) return kNotFinite;
  return magnitude == 0 ? kNothing : std::ilogb(magnitude) + 1;
}

std::size_t chunks_of(std::size_t count) { return (count + kChunkElements - 1) / kChunkElements; }

}  // namespace

/// One call's numbers.
struct AggregationLink::Numbers {
  AggregationKind kind;
  const void* in;
  void* out;
  std::size_t count;
  double scale = 0;         ///< 0: whole numbers
  std::uint64_t first = 0;  ///< sequence of chunk 0

  void put(std::size_t chunk, AggregationPacket& packet) const {
    const std::size_t at = chunk * kChunkElements;
    packet.header.kind = kind;
    packet.header.elements = static_cast<std::uint32_t>(std::min(kChunkElements, count - at));
    if (scale == 0) {
      std::memcpy(packet.values.data(), static_cast<const std::int32_t*>(in) + at,
                  packet.header.elements * sizeof(std::int32_t));
      return;
    }
    const float* from = static_cast<const float*>(in) + at;
    for (std::size_t i = 0; i < packet.header.elements; ++i)
      packet.values[i] = static_cast<std::int32_t>(std::lrint(from[i] * scale));
  }
  void get(std::size_t chunk, const AggregationPacket& packet) const {
    const std::size_t at = chunk * kChunkElements;
    if (scale == 0) {
      std::memcpy(static_cast<std::int32_t*>(out) + at, packet.values.data(),
                  packet.header.elements * sizeof(std::int32_t));
      return;
    }
    float* to = static_cast<float*>(out) + at;
    for (std::size_t i = 0; i < packet.header.elements; ++i)
      to[i] = static_cast<float>(packet.values[i] / scale);
  }
};

int fixed_point_shift(int exponent, int ranks) {
  const int more = static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
  return 30 - more - exponent;
}

AggregationLink::AggregationLink(const std::string& place, int rank, int ranks)
    : place_(place), ranks_(ranks), flights_(kAggregationSlots), out_(kAggregationSlots) {
  const auto slash = place.rfind('/');
  const auto colon = place.rfind(':');
  DYN_ASSERT(slash != std::string::npos && colon < slash, "the launcher writes the place");
  header_.key = std::stoull(place.substr(slash + 1), nullptr, 16);
  header_.rank = static_cast<std::uint16_t>(rank);
  header_.sequence = kAggregationSlots;
  meet(place.substr(0, colon), std::stoi(place.substr(colon + 1)));
}

void AggregationLink::meet(const std::string& addresses, int port) {
  const auto give_up = Clock::now() + kSilence;
  while (Clock::now() < give_up) {
    for (const std::string& address : split(addresses, ',')) {
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(static_cast<std::uint16_t>(port));
      if (inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) continue;
      sendto(datagrams_.descriptor(), &header_, sizeof header_, 0, reinterpret_cast<sockaddr*>(&to),
             sizeof to);
    }
    if (!wait_for_answer(std::chrono::milliseconds(50))) continue;
    AggregationHeader answer;
    sockaddr_in from{};
    socklen_t length = sizeof from;
    const auto got = recvfrom(datagrams_.descriptor(), &answer, sizeof answer, 0,
                              reinterpret_cast<sockaddr*>(&from), &length);
    if (got != sizeof answer || answer.key != header_.key || answer.rank != header_.rank) continue;
    // From here on the kernel takes datagrams of nobody else.
    if (connect(datagrams_.descriptor(), reinterpret_cast<sockaddr*>(&from), sizeof from) == 0)
      return;
  }
  throw Error(ErrorKind::environment,
              fmt::format("no aggregator answers at {} port {} by UDP: it has ended, or is another "
                          "build's, or the network between lets no UDP through",
                          addresses, port));
}

void AggregationLink::allreduce(const void* in, void* out, std::size_t count, DataType type) {
  if (type == DataType::int32) return stream({AggregationKind::sum, in, out, count});
  if (type != DataType::float32)
    throw Error(ErrorKind::input,
                fmt::format("an aggregator sums float32 and int32, not {}", name_of(type)));
  int exponent = exponent_of(static_cast<const float*>(in), count);
  stream({AggregationKind::greatest, &exponent, &exponent, 1});
  if (exponent == kNotFinite)
    throw Error(ErrorKind::input,
                "an aggregator sums in fixed point, and some rank's numbers are not finite");
  if (exponent == kNothing) {
    std::fill_n(static_cast<float*>(out), count, 0.0F);
    return;
  }
  const double scale = std::ldexp(1.0, fixed_point_shift(exponent, ranks_));
  counts_.largest_error = std::max(counts_.largest_error, ranks_ / scale / 2);
  stream({AggregationKind::sum, in, out, count, scale});
}

void AggregationLink::stream(Numbers numbers) {
  const std::size_t chunks = chunks_of(numbers.count);
  numbers.first = next_;
  next_ += chunks;
  for (std::size_t chunk = 0; chunk < std::min(chunks, kAggregationSlots); ++chunk)
    send(numbers, chunk);
  datagrams_.flush();
  std::size_t left = chunks;
  heard_ = Clock::now();
  auto looked = heard_;
  while (left > 0) {
    if (wait_for_answer(std::chrono::milliseconds(2))) left -= take_answers(numbers);
    const auto now = Clock::now();
    if (now - looked < std::chrono::milliseconds(1)) continue;
    looked = now;
    if (now - heard_ > kSilence)
      throw Error(
          ErrorKind::environment,
          fmt::format("the aggregator at {} has not answered for {} s: it has ended, or the "
                      "network between",
                      place_.substr(0, place_.rfind('/')), kSilence.count() / 1000));
    repeat(numbers, now);
  }
}

/// Those that have come, and in each one's slot the next chunk.
std::size_t AggregationLink::take_answers(const Numbers& numbers) {
  const auto now = Clock::now();
  std::size_t answered = 0;
  datagrams_.receive([&](const AggregationPacket& packet, const sockaddr_in&) {
    const AggregationHeader& header = packet.header;
    if (header.key == header_.key) heard_ = now;
    Flight& flight = flights_[header.sequence % kAggregationSlots];
    if (header.key != header_.key || header.kind != numbers.kind || !flight.open ||
        flight.sequence != header.sequence)
      return;
    const auto chunk = static_cast<std::size_t>(header.sequence - numbers.first);
    numbers.get(chunk, packet);
    // Of a chunk that was sent twice nobody knows which one was answered.
    if (flight.again == 0) learn_delay(now - flight.sent);
    flight.open = false;
    ++answered;
    if (chunk + kAggregationSlots < chunks_of(numbers.count))
      send(numbers, chunk + kAggregationSlots);
  });
  datagrams_.flush();
  return answered;
}

void AggregationLink::send(const Numbers& numbers, std::size_t chunk) {
  const std::uint64_t sequence = numbers.first + chunk;
  Flight& flight = flights_[sequence % kAggregationSlots];
  const bool again = flight.open && flight.sequence == sequence;
  flight = {sequence, Clock::now(), again ? flight.again + 1 : 0, true};
  ++(again ? counts_.sent_again : counts_.sent);
  AggregationPacket& packet = out_[sequence % kAggregationSlots];
  packet.header = header_;
  packet.header.sequence = sequence;
  numbers.put(chunk, packet);
  datagrams_.add(packet, nullptr);
}

void AggregationLink::repeat(const Numbers& numbers, Clock::time_point now) {
  // Longer each time: what is sent again too early delays all that comes after it.
  const double limit_us = delay_us_ == 0 ? 1e5 : std::clamp(delay_us_ + 4 * spread_us_, 1e4, 1e5);
  for (const Flight& flight : flights_) {
    const std::chrono::duration<double, std::micro> since = now - flight.sent;
    if (flight.open && since.count() > limit_us * (1 << std::min(flight.again, 2)))
      send(numbers, static_cast<std::size_t>(flight.sequence - numbers.first));
  }
  datagrams_.flush();
}

nlohmann::json to_json(const AggregationLink::Counts& counts) {
  return {{"chunks", counts.sent},
          {"sent_again", counts.sent_again},
          {"largest_error", counts.largest_error}};
}

const std::string& aggregator_place(const std::map<std::string, std::string>& knobs) {
  const auto place = knobs.find("aggregator");
  if (place == knobs.end())
    throw Error(ErrorKind::input,
                "no aggregator was started for this launch: it is the orchestrator that starts it");
  return place->second;
}

/// RFC 6298.
void AggregationLink::learn_delay(Clock::duration took) {
  const double us = std::chrono::duration<double, std::micro>(took).count();
  if (delay_us_ == 0) {
    delay_us_ = us;
    spread_us_ = us / 2;
    return;
  }
  spread_us_ += (std::abs(us - delay_us_) - spread_us_) / 4;
  delay_us_ += (us - delay_us_) / 8;
}

bool AggregationLink::wait_for_answer(std::chrono::milliseconds limit) const {
  pollfd waker{datagrams_.descriptor(), POLLIN, 0};
  return poll(&waker, 1, static_cast<int>(limit.count())) > 0;
}

}  // namespace dynamiccl
