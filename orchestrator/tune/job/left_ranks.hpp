#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

/// Ends processes of this host that have registered in this folder as ranks, and still have
/// files of it in their memory: ranks of a launch that is over, whatever container they have moved
/// to. Blocks until they are gone, for some seconds at most.
/// @param folder absolute, of one launch alone, as the ranks know it
/// @param held the same folder, by a name that leads there surely
/// @returns "name (pid)" of each
std::vector<std::string> end_ranks_of(const std::string& folder, const std::string& held);

}  // namespace dynamiccl
