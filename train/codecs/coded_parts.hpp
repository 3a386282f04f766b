#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "train/plan/exchange_plan.hpp"

namespace dynamiccl {

/// Part of a gradient that travels in one message: all of it, unless the plan cuts it.
struct CodedPart {
  std::size_t gradient = 0;
  std::size_t offset = 0;  ///< elements of the flat buffer
  std::size_t count = 0;   ///< elements
  std::size_t rows = 1;    ///< of a matrix that is whole, else 1
};
std::vector<CodedPart> coded_parts(const ExchangePlan& plan, std::size_t piece);

/// What a worker gives to the library for a piece of a step, by formula: plain values where there
/// is no codec. nullopt where it depends on the values.
std::optional<std::uint64_t> message_bytes(const ExchangePlan& plan, std::size_t piece,
                                           std::uint64_t step);

}  // namespace dynamiccl
