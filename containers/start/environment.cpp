#include "containers/start/environment.hpp"

#include <fmt/format.h>

#include <array>

#include "containers/apptainer.hpp"
#include "containers/bare_metal.hpp"
#include "containers/cluster/cluster_environment.hpp"
#include "containers/docker.hpp"
#include "containers/engine_choice.hpp"
#include "containers/local_ranks.hpp"
#include "containers/owner.hpp"
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
  EnvironmentPlan (*plan)(const EnvironmentProfile&, const StartRequest&, const std::string& name);
  std::unique_ptr<Environment> (*start)(const EnvironmentProfile&, const StartRequest&);
};

constexpr std::array kKinds{
    Kind{EnvironmentKind::bare_metal,
         [](const EnvironmentProfile&) -> std::optional<std::string> { return std::nullopt; },
         [](const Progress&) {},
         [](const EnvironmentProfile&, const StartRequest& request, const std::string& name) {
           return plan_local_ranks(request, name, RunFolder::path_of(name), owner_token(), {});
         },
         [](const EnvironmentProfile&, const StartRequest& request) {
           return start_bare_metal(request);
         }},
    Kind{EnvironmentKind::singularity, apptainer_unavailable_reason, prepare_apptainer_environment,
         [](const EnvironmentProfile& profile, const StartRequest& request,
            const std::string& name) {
           return plan_apptainer(profile, request, apptainer_site(name));
         },
         start_apptainer},
    Kind{EnvironmentKind::single_docker, docker_unavailable_reason, prepare_docker,
         docker_plan_here, start_docker},
    Kind{EnvironmentKind::cross_docker, docker_unavailable_reason, prepare_docker, docker_plan_here,
         start_docker}};

const Kind& kind_of(const EnvironmentProfile& profile) {
  for (const Kind& kind : kKinds)
    if (kind.kind == profile.kind) return kind;
  throw Error(ErrorKind::bug,
              fmt::format("profile {}: its kind has no row in kKinds", profile.name));
}

}  // namespace

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

EnvironmentPlan plan_environment(const EnvironmentProfile& profile, const StartRequest& request) {
  const std::string name = RunFolder::planned_name(request.run_id);
  if (request.cluster) return plan_cluster(profile, request, name);
  return kind_of(profile).plan(profile, request, name);
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
  for (const std::string& name : abandoned_run_folders())
    for (const std::string& path : remove_run_folder(name))
      removed.push_back((path == RunFolder::path_of(name) ? "folder " : "file ") + path);
  return removed;
}

}  // namespace dynamiccl
