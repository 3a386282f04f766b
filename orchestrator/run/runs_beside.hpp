#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace dynamiccl {

/// Processes of this program that measure on cores of this one's: runs, searches, replays, proofs,
/// of any user and database, as far as /proc shows them.
std::set<pid_t> runs_beside();

/// `flags_json` (a launch's noise flags, a list of sentences) with one more that names the runs
/// which were seen next to the launch; unchanged where there were none.
std::string with_runs_beside(const std::string& flags_json, const std::set<pid_t>& seen);

}  // namespace dynamiccl
