#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/statistics/verdict.hpp"
#include "db/reader.hpp"

namespace dynamiccl {

/// A rank's iteration is slow beyond this many times the others' of its kind.
inline constexpr double kSlowRank = 1.1;
/// A rank is slow in a launch where more than this share of its iterations is, beyond chance.
inline constexpr double kSlowLaunchShare = 0.5;

enum class PaceMeasure { own_work, arrival };

/// One rank of a group by one measure, over its launches.
struct RankPace {
  std::vector<Value> group;  ///< run_id to group_knobs
  std::string name;          ///< "bare-metal gloo ring 2 ranks"
  PaceMeasure measure = PaceMeasure::own_work;
  std::int64_t rank = 0;
  std::vector<double> launch_ratios;
  std::vector<double> slow_ratios;  ///< of the launches in which it is slow
  std::int64_t slow = 0;
  std::int64_t iterations = 0;
  std::vector<std::string> slow_blocks;
  Ratio ratio;
  std::string straggler;
};

/// The ranks of a run that others of their kind can be compared with, judged together.
std::vector<RankPace> paces_of_run(const Reader& reader, std::int64_t run);

/// One sentence on a run's stragglers; "" where no rank can be compared.
/// @param of_groups  group_key()s of those it speaks of; empty = all
std::string straggler_note(const Reader& reader, std::int64_t run,
                           const std::set<std::string>& of_groups);

}  // namespace dynamiccl
