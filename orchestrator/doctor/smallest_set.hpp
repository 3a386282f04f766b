#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace dynamiccl {

/// Numbers of those that are kept, ascending.
using KeptSet = std::vector<std::size_t>;

/// Whether what is looked for holds with these alone; nullopt: no more can be asked.
using HoldsWith = std::function<std::optional<bool>(const KeptSet&)>;

/// The smallest set that delta debugging finds: it holds with the set, and with none of its members
/// taken away alone, each of which was asked for. Halves are asked for first, so that few of many
/// are found in few questions (Junker's division, which takes the fewest here). No set is asked for
/// twice; that it holds with all is known.
/// @param count of all: 0, 1 ... count - 1
/// @returns nullopt when `holds` could not answer
std::optional<KeptSet> smallest_set(std::size_t count, const HoldsWith& holds);

}  // namespace dynamiccl
