#pragma once

#include <string>

#include "orchestrator/cli/verbs/verbs.hpp"

namespace dynamiccl {

/// Writes what another machine needs to repeat a run: the database, its experiment, files of the
/// machines that it simulates, the recipe of the image, versions, and a manifest with the checksum
/// of each.
/// @param place a new folder, or a new file NAME.tar
/// @param run as Reader::resolve_run takes it
/// @throws Error(input) where something is at that place
void write_capsule(Shared& shared, const std::string& place, const std::string& run);

/// A folder with a manifest, or a tar?
bool is_capsule(const std::string& place);

/// Checks a capsule, says what differs in the program, measures its experiment here and says which
/// of its verdicts came out alike.
/// @param launches 0 = as many as the experiment says
/// @param dry_run measures nothing
/// @returns exit code: 0 none came out otherwise, 1 a launch or cell failed, 3 some did, 5 none
/// was sure
int replay_capsule(const Shared& shared, const std::string& place, int launches, bool dry_run);

}  // namespace dynamiccl
