#pragma once

#include <map>
#include <string>

namespace dynamiccl {

/// Knobs of a row of nccl-tests, in text and JSON: reduction and root where they are not the usual,
/// and how many groups of ranks were measured beside each other where there was more than one.
std::map<std::string, std::string> nccl_tests_knobs(const std::string& redop,
                                                    const std::string& root, std::size_t groups);

}  // namespace dynamiccl
