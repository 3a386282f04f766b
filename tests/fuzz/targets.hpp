#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dynamiccl::fuzz {

/// A reader of what comes from outside. It may refuse an input with an Error that is no bug of
/// ours; whatever else it throws, and every crash, is a find.
struct Target {
  std::string_view name;  ///< its corpus is tests/fuzz/corpus/NAME
  void (*read)(const std::string& input);
};

const std::vector<Target>& targets();

/// Gives the input to the target.
/// @throws std::logic_error for what no reader may do
void try_input(const Target& target, const std::string& input);

}  // namespace dynamiccl::fuzz
