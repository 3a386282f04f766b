#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

class TableReader;

/// The calls of one step of a language model (train/spec/llm_traffic.hpp).
struct TrafficWork {
  std::string model;     ///< "" = none
  std::string parallel;  ///< how it is shared out over the ranks of an axis
  int shrink = 1;        ///< sizes are divided by it
};

/// A [[work]] of them. Notes a mistake where one of these counts of ranks cannot be shared out so.
TrafficWork read_traffic(TableReader& table, const std::vector<int>& ranks);

}  // namespace dynamiccl
