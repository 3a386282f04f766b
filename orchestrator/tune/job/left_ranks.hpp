#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

/// Ends processes of this host that still have files of this folder in their memory: ranks of a
/// launch that is over, whatever session, environment or container they have moved to. Blocks until
/// they are gone, for some seconds at most.
/// @param folder absolute, of one launch alone
/// @returns "name (pid)" of each
std::vector<std::string> end_ranks_of(const std::string& folder);

}  // namespace dynamiccl
