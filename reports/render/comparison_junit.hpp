#pragma once

#include <string>

#include "reports/compare/comparison.hpp"

namespace dynamiccl {

/// JUnit XML: a test case per cell; SLOWER is a failure, UNCLEAR is skipped, or an error where
/// launches failed in B alone. What has no result on one side is an error for each
/// missing_groups(), what one side did not plan is skipped.
std::string comparison_junit(const Comparison& comparison);
/// JUnit XML of a comparison that did not come about: one error with the reason, so that no file of
/// an earlier one passes for it.
std::string refusal_junit(const std::string& a, const std::string& b, const std::string& reason);

}  // namespace dynamiccl
