#pragma once

#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "containers/command.hpp"
#include "containers/engine_choice.hpp"
#include "containers/image.hpp"
#include "containers/paths.hpp"
#include "containers/private_engine.hpp"
#include "containers/start/environment.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {

inline const std::map<std::string, EnvironmentProfile>& shipped_profiles() {
  static const auto profiles =
      load_profiles({std::string(DYNAMICCL_SOURCE_DIR) + "/profiles/environments"});
  return profiles;
}

inline const EnvironmentProfile& shipped(const std::string& name) {
  return find_profile(shipped_profiles(), name);
}

/// A run id no other process uses.
inline std::string test_run(const std::string& what) {
  return "test-" + what + "-" + std::to_string(getpid());
}

inline StartRequest test_request(const std::string& what, int ranks = 2) {
  return {test_run(what), ranks, {std::string(DYNAMICCL_BINARY_DIR)}};
}

/// Names in DYNAMICCL_REQUIRE_ENVIRONMENTS, a list with commas; "all" stands for every profile.
inline bool is_required(const std::string& profile) {
  const char* list = std::getenv("DYNAMICCL_REQUIRE_ENVIRONMENTS");
  const auto names = split(list != nullptr ? list : "", ',');
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name == profile || name == "all"; });
}

/// Whether a machine that cannot have the environment is broken rather than another kind of
/// machine: the engine is installed, we are root, and yet no engine can be used. What the kernel
/// (user namespaces) or the profile itself rules out is no fault.
inline bool must_be_had(const EnvironmentProfile& profile) {
  if (is_required(profile.name)) return true;
  if (!is_root() || profile.user == Sharing::private_) return false;
  if (profile.kind == EnvironmentKind::singularity) return !find_apptainer().program.empty();
  const bool in_docker = profile.kind == EnvironmentKind::single_docker ||
                         profile.kind == EnvironmentKind::cross_docker;
  const EngineFacts facts = look_at_machine();
  return in_docker && facts.docker_client && facts.dockerd && facts.remote_host.empty() &&
         !choose_engine(facts).engine;
}

/// Skips the test where the machine cannot have the environment, fails it where it should.
inline void need(const EnvironmentProfile& profile) {
  const auto reason = unavailable_reason(profile);
  if (!reason) return;
  if (must_be_had(profile)) FAIL(profile.name << " should run here: " << *reason);
  SKIP(profile.name << ": " << *reason);
}

/// The environment; need() when there is none.
inline std::unique_ptr<Environment> started(const EnvironmentProfile& profile,
                                            const StartRequest& request) {
  need(profile);
  prepare(profile, {[](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }});
  return start_environment(profile, request);
}

inline std::string output_in(const Environment& environment, int rank,
                             const std::vector<std::string>& command) {
  const CommandResult result = run_command(environment.wrap_rank(rank, command, {}));
  INFO(result.err);
  CHECK(result.exit_code == 0);
  return std::string(trim(result.out));
}

/// A share in the private engine where that is the one to be used, so that it can still be asked
/// when the program under test has ended.
inline std::unique_ptr<EngineLease> held_engine() {
  const auto engine = find_engine().engine;
  if (!engine || !engine->is_private) return nullptr;
  return std::make_unique<EngineLease>(default_private_engine());
}

/// Everything on this machine that still carries the run: containers, networks, processes, mounts.
inline std::vector<std::string> traces_of(const std::string& run_id) {
  std::vector<std::string> traces;
  const std::string label = "label=dynamiccl.run=" + run_id;
  // The engine in use may be our own private one, with a socket of its own.
  if (const auto engine = find_engine().engine)
    for (const auto& listing :
         std::vector<std::vector<std::string>>{{"ps", "--all", "--quiet", "--filter", label},
                                               {"network", "ls", "--quiet", "--filter", label}})
      for (const std::string& line : split(run_command(engine_argv(*engine, listing)).out, '\n'))
        if (!line.empty()) traces.push_back(listing[0] + " " + line);
  return traces;
}

}  // namespace dynamiccl
