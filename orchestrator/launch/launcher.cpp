#include "orchestrator/launch/launcher.hpp"

#include <fmt/format.h>

#include <array>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/malloc_settings.hpp"

namespace dynamiccl {
namespace {

struct BackendRow {
  Backend backend;
  Launcher launcher;
};

constexpr Launcher kOpenMpi{"openmpi", "mpirun.openmpi", "openmpi-bin", build_openmpi, "pmix"};
constexpr Launcher kMpich{"mpich", "mpirun.mpich", "mpich", build_mpich, "pmi2"};
constexpr Launcher kLocal{"local", "", "", build_local, "none"};
constexpr Launcher kSlurm{"slurm", "srun", "slurm-client", build_srun, ""};

// One row per backend: a new one is added here and nowhere else in this folder.
constexpr std::array kBackends{
    BackendRow{Backend::openmpi, kOpenMpi}, BackendRow{Backend::mpich, kMpich},
    BackendRow{Backend::cuda_aware_mpi, kOpenMpi}, BackendRow{Backend::gloo, kLocal},
    BackendRow{Backend::nccl, kLocal}};

const BackendRow& row_of(Backend backend) {
  for (const auto& row : kBackends) {
    if (row.backend == backend) return row;
  }
  throw Error(ErrorKind::bug, fmt::format("backend {} has no launcher", name_of(backend)));
}

std::string expand(std::string text, const BackendSetting& setting, const LaunchRequest& request,
                   const std::string& profile) {
  const LaunchShape& shape = request.shape;
  const std::array<std::pair<std::string_view, const std::string*>, 5> values{
      {{"{subnet}", &shape.subnet},
       {"{interface}", &shape.interface},
       {"{host_address}", &shape.host_address},
       {"{run_folder}", &request.run_folder},
       {"{program_folder}", &request.program_folder}}};
  for (const auto& [placeholder, value] : values) {
    for (auto at = text.find(placeholder); at != std::string::npos; at = text.find(placeholder)) {
      if (value->empty()) {
        throw Error(ErrorKind::input,
                    fmt::format("profile {}: {} = \"{}\" needs {}, which this environment has not "
                                "(it uses the host's network); write the value itself",
                                profile, profile_text(setting.scope, setting.name), setting.value,
                                placeholder));
      }
      text.replace(at, placeholder.size(), *value);
    }
  }
  return text;
}

/// Joins the allocator's settings with the GLIBC_TUNABLES that the ranks would have without them.
void set_tunables(LaunchRequest& request, const std::map<std::string, std::string>& settings) {
  const std::string variable(kTunablesVariable);
  const auto own = request.environment.find(variable);
  const std::string before =
      own == request.environment.end() ? request.inherited_tunables : own->second;
  const std::string after = with_malloc_settings(before, settings);
  // What is taken out of an inherited one must be written as well.
  if (!after.empty() || !before.empty()) request.environment[variable] = after;
}

}  // namespace

const Launcher& launcher_for(Backend backend) { return row_of(backend).launcher; }

const Launcher& launcher_for(Backend backend, const LaunchShape& shape) {
  const Launcher& own = launcher_for(backend);
  if (shape.step_prefix.empty()) return own;
  // PMI-2 is a connection that each rank inherits, and no engine takes one into a container.
  const bool cut_off =
      !shape.launch_agent.empty() && own.process_management == kMpich.process_management;
  // Who has no launcher is started by Slurm in any case.
  return (shape.slurm_daemons || cut_off) && own.name != kLocal.name ? own : kSlurm;
}

std::string_view worker_program(Backend backend) { return backend_facts(backend).worker; }

std::string trainer_program(Backend backend) {
  std::string name(worker_program(backend));
  constexpr std::string_view worker = "worker";
  return name.replace(name.find(worker), worker.size(), "trainer");
}

void apply_settings(LaunchRequest& request, const EnvironmentProfile& profile,
                    const std::map<std::string, std::string>& knobs) {
  std::map<std::string, std::string> tunables;
  const auto target = [&](SettingScope scope) -> std::map<std::string, std::string>& {
    switch (scope) {
      case SettingScope::mca:
        return request.mca;
      case SettingScope::malloc:
        return tunables;
      case SettingScope::env:
        return request.environment;
      case SettingScope::call:
        break;
    }
    throw Error(ErrorKind::bug, "a call's setting is none of a launch");
  };
  for (const auto& [name, value] : profile.environment) request.environment[name] = value;
  const auto settings = profile.backend_settings.find(request.backend);
  if (settings != profile.backend_settings.end()) {
    for (const auto& setting : settings->second)
      target(setting.scope)[setting.name] = expand(setting.value, setting, request, profile.name);
  }
  for (const auto& [text, value] : knobs) {
    const SettingName knob = profile_setting(text);
    target(knob.scope)[knob.name] = value;
  }
  if (!tunables.empty()) set_tunables(request, tunables);
}

}  // namespace dynamiccl
