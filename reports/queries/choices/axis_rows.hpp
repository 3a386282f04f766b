#pragma once

#include <string>
#include <vector>

#include "reports/model/alternatives.hpp"

namespace dynamiccl {

// What the queries axis and tradeoffs have in common.

/// The time columns of these values of an axis, in their order: "16 MiB_us".
std::vector<std::string> value_columns(const std::string& axis,
                                       const std::vector<std::string>& values);

/// The axes of a group but the one along which it varies, without the regime, which is not the same
/// on all sides; then the median time of each value, NULL where it was not measured; then, where
/// the axis is a choice, the winner, whether it is sure, and how the cells were timed.
std::vector<Value> axis_row(const Alternatives& group, const std::string& axis,
                            const std::vector<std::string>& values);

}  // namespace dynamiccl
