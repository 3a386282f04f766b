#pragma once

namespace dynamiccl {

/// Where a launch whose ranks choose settings themselves writes its choices, next to its records.
inline constexpr const char* kDecisionsFile = "decisions.jsonl";

}  // namespace dynamiccl
