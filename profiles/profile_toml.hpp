#pragma once

#include "profiles/keys.hpp"
#include "profiles/profile.hpp"
#include "profiles/table_reader.hpp"

namespace dynamiccl {

/// What a profile may say: in a file of its own, which has a name too, and in an experiment's
/// [profile.NAME].
const TableKeys& profile_file_keys();
const TableKeys& profile_keys();

/// Applies a profile's keys on top of `base` and checks the result: how a profile file is read and
/// how an experiment changes one ([profile.NAME]). `name` and `extends` have been read before.
/// Mistakes are noted.
EnvironmentProfile apply_profile_keys(const EnvironmentProfile& base, TableReader& keys);

}  // namespace dynamiccl
