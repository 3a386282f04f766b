#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "workers/aggregation/datagrams.hpp"

namespace dynamiccl {

/// Scales numbers of magnitude below 2^exponent so that the sum of `ranks` of them fits into 32
/// bits: x is sent as the integer nearest to x * 2^fixed_point_shift(). Each rank's rounding is
/// half a unit at most, so that a sum is off by less than ranks / 2^(shift + 1).
int fixed_point_shift(int exponent, int ranks);

/// A rank's end of an aggregator: sends its numbers in chunks and takes their sums, as many chunks
/// under way as the aggregator has slots, and sends again what is not answered. One thread.
class AggregationLink {
 public:
  struct Counts {
    std::uint64_t sent = 0;        ///< chunks, each counted once
    std::uint64_t sent_again = 0;  ///< that were not answered in time
    double largest_error = 0;      ///< that fixed point can make in a float32 sum so far
  };

  /// Meets the aggregator. @param place "ADDRESS,ADDRESS...:PORT/KEY", of which one is reached
  /// @throws Error(environment) when none answers
  AggregationLink(const std::string& place, int rank, int ranks);

  /// All-reduce of float32 (in fixed point, scaled for this call) or int32 (modulo 2^32); `out` may
  /// be `in`. Ranks: all, with calls in the same order.
  /// @throws Error(input) for other types and numbers that are not finite, on all ranks
  /// @throws Error(environment) when the aggregator has not answered for kSilence, be it that it
  /// waits for other ranks, for which there is no limit here
  void allreduce(const void* in, void* out, std::size_t count, DataType type);
  [[nodiscard]] const Counts& counts() const { return counts_; }

  static constexpr std::chrono::milliseconds kSilence{2000};

 private:
  using Clock = std::chrono::steady_clock;
  struct Numbers;
  struct Flight {
    std::uint64_t sequence = 0;
    Clock::time_point sent;
    int again = 0;  ///< times
    bool open = false;
  };
  void meet(const std::string& addresses, int port);
  void stream(Numbers numbers);
  std::size_t take_answers(const Numbers& numbers);
  void send(const Numbers& numbers, std::size_t chunk);
  void repeat(const Numbers& numbers, Clock::time_point now);
  void learn_delay(Clock::duration took);
  [[nodiscard]] bool wait_for_answer(std::chrono::milliseconds limit) const;

  std::string place_;
  AggregationHeader header_;
  int ranks_;
  Datagrams datagrams_;
  Clock::time_point heard_;  ///< when the aggregator last answered
  std::uint64_t next_ = 0;   ///< sequence of the next call's first chunk
  std::vector<Flight> flights_;
  std::vector<AggregationPacket> out_;  ///< of each slot
  double delay_us_ = 0;                 ///< smoothed, as TCP does
  double spread_us_ = 0;
  Counts counts_;
};

/// For records: chunks, sent_again, largest_error.
nlohmann::json to_json(const AggregationLink::Counts& counts);

/// Where a launch's aggregator is, of a cell's settings. @throws Error(input) where it has none
const std::string& aggregator_place(const std::map<std::string, std::string>& knobs);

}  // namespace dynamiccl
