#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "tuner/table/table.hpp"

namespace dynamiccl {

/// What Gloo's default took, wherever it was measured.
struct GlooTimes {
  struct Row {
    std::size_t regime = 0;  ///< into `regimes`
    Collective collective{};
    int ranks = 0;
    Bytes size;
    Micros time;
  };
  std::vector<nlohmann::json> regimes;  ///< Regime::json
  std::vector<Row> rows;
  void add(const GlooTimes& more);
};

/// Of a table: its rows of Gloo, by what their defaults took.
GlooTimes gloo_times(const ConfigurationTable& table);

/// Gloo's times in the place of one job: what NCCL's calls there are compared with. Places are
/// equal where all is that is not the library's own doing: containers, what is kept apart, the
/// network, and how many of the pairs of ranks share a machine.
class GlooFloor {
 public:
  GlooFloor() = default;
  /// @param regime Regime::json of the job
  GlooFloor(const GlooTimes& known, const nlohmann::json& regime);

  [[nodiscard]] bool empty() const { return sizes_.empty(); }
  [[nodiscard]] std::size_t count() const;  ///< sizes of all collectives
  /// Median of what was measured of this size; between two sizes of which the larger has at most
  /// four times the bytes, on the line between them; less than twice as many bytes as the largest,
  /// as if each took as long. nullopt: not known.
  [[nodiscard]] std::optional<Micros> at(Collective collective, int ranks, Bytes size) const;

 private:
  std::map<std::pair<Collective, int>, std::map<std::uint64_t, double>> sizes_;
};

}  // namespace dynamiccl
