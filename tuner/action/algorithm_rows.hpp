#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

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

/// Does the library run it, and not our own point-to-point calls?
bool has_library_call(Collective collective);

/// Is it an algorithm of this program's worker, which no job of others can load?
bool is_own_algorithm(std::string_view algorithm);
/// Does the worker have it for this collective?
bool has_own_algorithm(std::string_view algorithm, Collective collective);

/// Every name that a worker takes as a cell's algorithm, "library" first: what is never searched
/// and what newer versions of a library have among them. A name besides these is a mistake.
std::vector<std::string> offered_algorithms(Backend backend, Collective collective);

}  // namespace dynamiccl
