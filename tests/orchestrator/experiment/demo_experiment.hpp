#pragma once

#include <map>
#include <string>
#include <vector>

#include "orchestrator/experiment/experiment.hpp"

namespace dynamiccl::testing {

/// The environments that come with the project.
inline const std::map<std::string, EnvironmentProfile>& known_profiles() {
  static const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  return profiles;
}

/// An experiment as its file's text gives it, "demo.toml" to whoever reports a mistake.
inline Experiment parsed(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_experiment(text, "demo.toml", overrides, known_profiles());
}

}  // namespace dynamiccl::testing
