#pragma once

#include <string>

#include "profiles/profile.hpp"

namespace dynamiccl {

// Steps that fixes are made of: each changes a profile so that what was wrong in it no longer is.

/// Replaces or adds a backend's setting.
void put_setting(EnvironmentProfile& profile, Backend backend, BackendSetting setting);
/// Removes a backend's setting where it has it.
void drop_setting(EnvironmentProfile& profile, Backend backend, SettingScope scope,
                  std::string_view name);

/// The host's network; settings that name the containers' subnet name the interface instead.
void use_host_network(EnvironmentProfile& profile);
/// The host's IPC namespace, and with it its /dev/shm.
void use_host_ipc(EnvironmentProfile& profile);
/// Takes back the settings by which profiles with separate PID namespaces keep libraries off CMA.
void allow_cma(EnvironmentProfile& profile);

}  // namespace dynamiccl
