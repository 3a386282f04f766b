#pragma once

#include <cstdint>
#include <vector>

#include "workers/messages.hpp"

namespace dynamiccl {

/// The order in which all ranks start pieces: rank 0 chooses, the others follow.
class AgreedOrder {
 public:
  /// @param pieces of a step: no more are chosen at once
  AgreedOrder(Messages& comm, std::size_t pieces) : comm_(comm), order_(pieces + 1) {}
  [[nodiscard]] bool chooses() const { return comm_.rank() == 0; }
  /// Replaces this rank's choice by rank 0's. Ranks: all.
  void agree(std::vector<std::size_t>& chosen);

 private:
  Messages& comm_;
  std::vector<std::uint32_t> order_;
};

}  // namespace dynamiccl
