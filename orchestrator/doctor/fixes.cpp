#include "orchestrator/doctor/fixes.hpp"

#include <algorithm>

#include "core/vocabulary/backend.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kVaderCopies = "btl_vader_single_copy_mechanism";
constexpr const char* kProcLink = "UCX_POSIX_USE_PROC_LINK";
constexpr const char* kTransports = "UCX_TLS";

}  // namespace

void put_setting(EnvironmentProfile& profile, Backend backend, BackendSetting setting) {
  auto& settings = profile.backend_settings[backend];
  const auto same = std::find_if(settings.begin(), settings.end(), [&](const auto& known) {
    return known.scope == setting.scope && known.name == setting.name;
  });
  if (same == settings.end())
    settings.push_back(std::move(setting));
  else
    *same = std::move(setting);
}

void drop_setting(EnvironmentProfile& profile, Backend backend, SettingScope scope,
                  std::string_view name) {
  const auto found = profile.backend_settings.find(backend);
  if (found == profile.backend_settings.end()) return;
  std::erase_if(found->second, [&](const auto& setting) {
    return setting.scope == scope && setting.name == name;
  });
}

void use_host_network(EnvironmentProfile& profile) {
  profile.network = Sharing::host;
  profile.link_bits_per_s.reset();
  for (auto& [backend, settings] : profile.backend_settings)
    for (auto& setting : settings)
      if (setting.value == "{subnet}") setting.value = "{interface}";
}

void use_host_ipc(EnvironmentProfile& profile) {
  profile.ipc = Sharing::host;
  profile.shm_size = Bytes(0);  // the host's has its size already
}

void allow_cma(EnvironmentProfile& profile) {
  for (const BackendFacts& facts : kBackendFacts) {
    if (facts.mca) drop_setting(profile, facts.backend, SettingScope::mca, kVaderCopies);
    // Set against CMA in profiles of MPICH alone: elsewhere they are somebody's own.
    if (!is_host_mpi(facts.backend) || facts.mca) continue;
    drop_setting(profile, facts.backend, SettingScope::env, kProcLink);
    drop_setting(profile, facts.backend, SettingScope::env, kTransports);
  }
}

}  // namespace dynamiccl
