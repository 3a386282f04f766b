#pragma once

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "containers/command.hpp"
#include "containers/engine.hpp"
#include "containers/environment.hpp"
#include "core/text.hpp"

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

/// The environment, or a skipped test where the machine cannot have it.
inline std::unique_ptr<Environment> started(const EnvironmentProfile& profile,
                                            const StartRequest& request) {
  if (const auto reason = unavailable_reason(profile)) SKIP(profile.name << ": " << *reason);
  prepare(profile, [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
  return start_environment(profile, request);
}

inline std::string output_in(const Environment& environment, int rank,
                             const std::vector<std::string>& command) {
  const CommandResult result = run_command(environment.wrap_rank(rank, command, {}));
  INFO(result.err);
  CHECK(result.exit_code == 0);
  return std::string(trim(result.out));
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
