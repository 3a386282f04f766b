#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dynamiccl {

/// What a rank looks up per call: a fixed layout without pointers, so that it lies in files that
/// processes of several containers map. Numbers are NCCL's own (ncclFunc_t, NCCL_ALGO_*,
/// NCCL_PROTO_*), as NCCL is what reads it per call.
struct CallCell {
  static constexpr std::uint8_t kAny = 0xff;
  std::uint8_t algorithm = kAny;  ///< kAny: leave the choice to the library
  std::uint8_t protocol = kAny;
  std::uint8_t channels = 0;  ///< cap; 0: the library's own
  std::uint8_t reserved = 0;
  [[nodiscard]] bool leaves_all() const {
    return algorithm == kAny && protocol == kAny && channels == 0;
  }
  bool operator==(const CallCell&) const = default;
};

inline constexpr std::size_t kCallFunctions = 5;  ///< broadcast to all-reduce
inline constexpr std::size_t kCallBins = 48;      ///< by the size's whole binary logarithm
inline constexpr std::array<std::string_view, kCallFunctions> kCallFunctionNames{
    "broadcast", "reduce", "allgather", "reduce_scatter", "allreduce"};
inline constexpr std::array<std::string_view, 7> kCallAlgorithmNames{
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
inline constexpr std::array<std::string_view, 3> kCallProtocolNames{"LL", "LL128", "Simple"};

/// The settings of one communicator. All cells default: the library alone.
struct CallTable {
  std::array<std::array<CallCell, kCallBins>, kCallFunctions> cells{};
  bool operator==(const CallTable&) const = default;

  /// Of `bytes`; everything of 2^47 bytes and more shares the last bin.
  static std::size_t bin(std::uint64_t bytes) {
    const auto width = static_cast<std::size_t>(bytes == 0 ? 0 : 63 - __builtin_clzll(bytes));
    return width < kCallBins ? width : kCallBins - 1;
  }
};

/// Never 0. Not against forgery: against torn and damaged memory and files.
std::uint64_t checksum_of(const CallTable& table);

/// Whether every cell holds what a table file may hold: what other processes wrote to shared memory
/// need not.
bool is_sound(const CallTable& table);

/// Rows of a table file: calls of these communicators, functions and sizes.
struct CallRow {
  unsigned ranks = 0;  ///< 0: any
  unsigned nodes = 0;  ///< as the library counts nodes; 0: any
  std::size_t function = 0;
  std::size_t first_bin = 0;
  std::size_t last_bin = 0;  ///< inclusive
  CallCell cell;
  bool operator==(const CallRow&) const = default;
};

/// The table of a communicator: rows that name its ranks and nodes go before those that do not.
CallTable table_for(const std::vector<CallRow>& rows, unsigned ranks, unsigned nodes);

/// A table's rows, for communicators of these ranks and nodes (0: any): what table_for() makes it
/// from again.
std::vector<CallRow> call_rows(const CallTable& table, unsigned ranks = 0, unsigned nodes = 0);

/// What the library expected of one choice where a table was made.
struct CallCost {
  std::size_t function = 0;
  std::size_t bin = 0;
  std::uint8_t algorithm = 0;
  std::uint8_t protocol = 0;
  float us = 0;
  bool operator==(const CallCost&) const = default;
};

/// Where a table's rows were measured, as far as a rank can compare it with where it is itself.
/// Ranks and nodes are in the rows.
struct CallTableOrigin {
  std::string nccl;  ///< "2.28"; "": not known
  std::string gpu;   ///< model; "": not known
  std::vector<CallCost> costs;
  bool operator==(const CallTableOrigin&) const = default;
};

inline constexpr float kMostCostUs = 1e12F;

/// One cost per function and size that NCCL had decided: of ring and Simple where it has not ruled
/// that out, else of what it has.
/// @param predicted as CallStreamHeader: [algorithm * 3 + protocol], below 0: ruled out
template <class Predictions>
std::optional<CallCost> witness_cost(std::size_t function, std::size_t bin,
                                     const Predictions& predicted) {
  constexpr std::size_t kProtocols = kCallProtocolNames.size();
  constexpr std::size_t kRingSimple = kProtocols + 2;
  for (std::size_t i = 0; i <= predicted.size(); ++i) {
    const std::size_t at = i == 0 ? kRingSimple : i - 1;
    if (predicted[at] > 0 && predicted[at] < kMostCostUs)
      return CallCost{function, bin, static_cast<std::uint8_t>(at / kProtocols),
                      static_cast<std::uint8_t>(at % kProtocols), predicted[at]};
  }
  return std::nullopt;
}

/// Text with a version and a checksum:
///   dynamiccl-nccl-table 2                       (1 where nothing is known of the origin)
///   made nccl 2.28
///   made gpu NVIDIA H100 80GB HBM3
///   made cost FUNCTION LOG2 ALGORITHM PROTOCOL NANOSECONDS
///   row RANKS NODES FUNCTION FIRST_LOG2 LAST_LOG2 ALGORITHM PROTOCOL CHANNELS     ("-": any)
///   checksum HEX
std::string to_text(const std::vector<CallRow>& rows, const CallTableOrigin& origin = {});

struct CallTableFile {
  std::vector<CallRow> rows;
  CallTableOrigin origin;
};
/// @param problem set to what is wrong with the text; "" when it was whole
/// @returns nothing where there is a problem: half a table is none
CallTableFile call_table_from_text(std::string_view text, std::string& problem);

}  // namespace dynamiccl
