#include "containers/environment.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "containers/apptainer.hpp"
#include "containers/bare_metal.hpp"
#include "containers/cluster/cluster_environment.hpp"
#include "containers/docker.hpp"
#include "containers/image.hpp"
#include "containers/local_ranks.hpp"
#include "containers/paths.hpp"
#include "containers/private_engine.hpp"
#include "containers/run_folder.hpp"
#include "containers/unsupported.hpp"
#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

/// The one table of environment kinds: a new kind is one row and one file.
struct Kind {
  EnvironmentKind kind;
  std::optional<std::string> (*reason)(const EnvironmentProfile&);
  void (*prepare)(const Progress&);
  std::unique_ptr<Environment> (*start)(const EnvironmentProfile&, const StartRequest&);
  std::vector<std::vector<std::string>> (*commands)(const EnvironmentProfile&, const StartRequest&);
  LaunchShape (*shape)(const EnvironmentProfile&, const StartRequest&);
  std::vector<std::string> (*rank)(const EnvironmentProfile&, const StartRequest&, int,
                                   const std::vector<std::string>&,
                                   const std::map<std::string, std::string>&);
};

std::optional<std::string> always_available(const EnvironmentProfile& /*profile*/) {
  return std::nullopt;
}
void nothing_to_prepare(const Progress& /*progress*/) {}
std::vector<std::vector<std::string>> no_commands(const EnvironmentProfile& /*profile*/,
                                                  const StartRequest& /*request*/) {
  return {};
}
LaunchShape bare_metal_shape(const EnvironmentProfile& /*profile*/, const StartRequest& request) {
  return bare_metal_planned_shape(request);
}

constexpr std::array kKinds{
    Kind{EnvironmentKind::bare_metal, always_available, nothing_to_prepare, start_bare_metal,
         no_commands, bare_metal_shape, bare_metal_planned_rank},
    Kind{EnvironmentKind::singularity, apptainer_unavailable_reason, prepare_apptainer_environment,
         start_apptainer, no_commands, apptainer_planned_shape, apptainer_planned_rank},
    Kind{EnvironmentKind::single_docker, docker_unavailable_reason, prepare_docker, start_docker,
         docker_start_commands, docker_planned_shape, docker_planned_rank},
    Kind{EnvironmentKind::cross_docker, docker_unavailable_reason, prepare_docker, start_docker,
         docker_start_commands, docker_planned_shape, docker_planned_rank}};

const Kind& kind_of(const EnvironmentProfile& profile) {
  for (const Kind& kind : kKinds)
    if (kind.kind == profile.kind) return kind;
  throw Error(ErrorKind::bug,
              fmt::format("profile {}: its kind has no row in kKinds", profile.name));
}

}  // namespace

bool only_user_namespaces() { return !is_root() && !find_apptainer().setuid; }

std::optional<std::string> unavailable_reason(const EnvironmentProfile& profile) {
  return kind_of(profile).reason(profile);
}

void prepare(const EnvironmentProfile& profile, const Progress& progress) {
  const Kind& kind = kind_of(profile);
  if (const auto reason = kind.reason(profile))
    throw UnsupportedError(fmt::format("profile {}: {}", profile.name, *reason));
  kind.prepare(progress);
}

std::unique_ptr<Environment> start_environment(const EnvironmentProfile& profile,
                                               const StartRequest& request) {
  if (request.cluster) return start_on_cluster(profile, request);
  return kind_of(profile).start(profile, request);
}

std::vector<std::vector<std::string>> start_commands(const EnvironmentProfile& profile,
                                                     const StartRequest& request) {
  if (request.cluster) return cluster_start_commands(request);
  return kind_of(profile).commands(profile, request);
}

LaunchShape planned_shape(const EnvironmentProfile& profile, const StartRequest& request) {
  if (request.cluster) return cluster_planned_shape(profile, request);
  return kind_of(profile).shape(profile, request);
}

std::vector<std::string> planned_rank_command(const EnvironmentProfile& profile,
                                              const StartRequest& request, int rank,
                                              const std::vector<std::string>& command,
                                              const std::map<std::string, std::string>& env) {
  if (request.cluster) return cluster_planned_rank(profile, request, rank, command, env);
  return kind_of(profile).rank(profile, request, rank, command, env);
}

std::vector<std::string> clean_leftovers() {
  std::vector<std::string> removed = end_marked_processes("");
  const EngineSearch search = find_engine();
  const bool answers = search.engine && (search.engine->kind == EngineKind::podman ||
                                         docker_answers(search.engine->socket));
  if (answers)
    for (const std::string& line : clean_engine(*search.engine)) removed.push_back(line);
  for (const std::string& line : stop_abandoned_engine(default_private_engine()))
    removed.push_back(line);
  for (const std::string& name : abandoned_run_folders()) {
    std::error_code code;
    std::filesystem::remove_all(RunFolder::path_of(name), code);
    removed.push_back("folder " + RunFolder::path_of(name));
  }
  return removed;
}

}  // namespace dynamiccl
