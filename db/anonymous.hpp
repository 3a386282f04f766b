#pragma once

#include <string>
#include <vector>

#include "db/anonymous_words.hpp"

namespace dynamiccl {

/// Writes a copy of the database without names of hosts and users, paths outside the system's own
/// folders, addresses, boot ids, GPUs' ids, comments of experiments and what programs wrote to
/// stderr. Names of runs, profiles and settings stay, but for the words that are hidden.
/// @param hidden further words that are to be replaced: a project, a person
/// @throws Error(input) where `to` exists, Error(environment), Error(data)
AnonymousSummary write_anonymous(const std::string& from, const std::string& to,
                                 const std::vector<std::string>& hidden);

}  // namespace dynamiccl
