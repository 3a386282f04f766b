#pragma once

#include <span>
#include <string_view>

#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// Which group sizes an algorithm is made for.
enum class RanksRule { any, two, power_of_two, even };

/// An algorithm of a library and the knobs that it reads.
struct AlgorithmRow {
  Backend backend;
  Collective collective;
  std::string_view name;
  bool segment = false;
  bool fanout = false;
  RanksRule ranks = RanksRule::any;
};

std::span<const AlgorithmRow> algorithm_rows();

}  // namespace dynamiccl
