#pragma once

#include "profiles/profile.hpp"
#include "profiles/strict_toml.hpp"

namespace dynamiccl {

/// Applies a profile's keys on top of `base` and checks the result: how a profile file is read and
/// how an experiment overrides one (`[environments.override]`). `name` and `extends` are not keys
/// here.
/// @throws Error(input) with source:line:col
EnvironmentProfile apply_profile_keys(const EnvironmentProfile& base, StrictTable& keys);

/// Refuses what contradicts itself (a shm size on the host's /dev/shm, capabilities on bare metal).
/// @throws Error(input) pointing into `keys`
void check_profile(const EnvironmentProfile& profile, const StrictTable& keys);

}  // namespace dynamiccl
