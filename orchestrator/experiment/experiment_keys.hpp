#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/vocabulary/json.hpp"
#include "profiles/keys.hpp"

namespace dynamiccl {

/// More than any job has had; a slip of the finger must not become a plan of a billion processes.
inline constexpr int kMostRanks = 1 << 20;

/// Axes that have no default: each stands in [axes] or in a [[zip]].
inline constexpr std::array kRequiredAxes{"environment", "backend", "architecture", "ranks"};

/// Where a file names none.
inline constexpr std::uint64_t kUsualSeed = 1;

/// What an experiment file may say: what read_experiment() checks it by.
const TableKeys& experiment_keys();
/// A [[work]] of training.
const TableKeys& training_work_keys();
/// A [[work]] of a language model's traffic.
const TableKeys& traffic_work_keys();

/// JSON Schema (draft 7) of experiment files, for editors. What needs more than a pattern or a
/// range (expressions, the lists of a [[zip]]) only the reader checks.
nlohmann::ordered_json experiment_schema();

/// The reference page of keys in Markdown, which `schema --markdown` prints.
std::string experiment_keys_page();

}  // namespace dynamiccl
