#include <catch2/catch_test_macros.hpp>

#include "profiles/profile.hpp"

using namespace dynamiccl;

namespace {
std::map<std::string, EnvironmentProfile> shipped() {
  return load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
}
}  // namespace

TEST_CASE("the shipped environments are read and hold the four kinds", "[B-01][B-02][B-03][B-04]") {
  const auto profiles = shipped();
  for (const char* name : {"bare-metal", "singularity", "single-docker", "cross-docker"}) {
    REQUIRE(profiles.contains(name));
    CHECK(name_of(profiles.at(name).kind) == name);
  }
  for (const auto& [name, profile] : profiles) {
    CAPTURE(name);
    CHECK(profile.description.size() > 20);
  }
}

TEST_CASE("shipped capabilities and settings carry their reasons, and none is privileged") {
  for (const auto& [name, profile] : shipped()) {
    CAPTURE(name);
    for (const auto& capability : profile.capabilities) {
      CHECK(capability.name == "SYS_PTRACE");
      CHECK(capability.reason.find("CMA") != std::string::npos);
    }
    for (const auto& [backend, settings] : profile.backend_settings)
      for (const auto& setting : settings) CHECK(setting.reason.size() > 10);
    CHECK(profile.security_options.empty());
  }
}

TEST_CASE("variants change what their name says and nothing else of their base") {
  const auto profiles = shipped();
  const auto& cross = profiles.at("cross-docker");
  const auto& host = profiles.at("cross-docker-host-network");
  CHECK(host.network == Sharing::host);
  CHECK(host.ipc == cross.ipc);
  CHECK(profiles.at("cross-docker-shared-ipc").ipc == Sharing::shared);
  CHECK(profiles.at("cross-docker-shared-ipc").network == Sharing::private_);
  const auto& pod = profiles.at("cross-docker-pod");
  CHECK(pod.ipc == Sharing::shared);
  CHECK(pod.pid == Sharing::shared);
  CHECK(pod.network == Sharing::private_);
  CHECK(pod.backend_settings.at(Backend::openmpi).size() ==
        cross.backend_settings.at(Backend::openmpi).size());
  // UCX's shared memory starts by luck there.
  for (const char* apart : {"cross-docker-shared-ipc", "cross-docker-shared"})
    CHECK(profiles.at(apart).backend_settings.at(Backend::mpich).front().value == "tcp,self");
  const auto& shared = profiles.at("cross-docker-shared");
  CHECK(shared.network == Sharing::host);
  CHECK(shared.ipc == Sharing::host);
  CHECK(shared.uts == Sharing::host);
  CHECK(shared.pid == Sharing::private_);
  CHECK(shared.gpus == GpuVisibility::all);
  CHECK(profiles.at("single-docker-no-cma").capabilities.empty());
  CHECK(profiles.at("cross-docker-300mbit").link_bits_per_s == 300e6);
  CHECK(profiles.at("singularity-userns").user == Sharing::private_);
  CHECK(profile_for_user(profiles, "singularity", true).name == "singularity-userns");
}

TEST_CASE("every shipped environment written as TOML reads back as itself") {
  for (const auto& [name, profile] : shipped()) {
    CAPTURE(name);
    const std::string text = "name = \"" + name + "\"\n" + to_toml_keys(profile);
    CHECK(to_json(parse_profile(text, "written.toml")) == to_json(profile));
  }
}

TEST_CASE("every environment switches NVLink SHARP off for NCCL") {
  for (const auto& [name, profile] : shipped()) {
    CAPTURE(name);
    bool off = false;
    for (const auto& setting : profile.backend_settings.at(Backend::nccl))
      off = off || (setting.name == "NCCL_NVLS_ENABLE" && setting.value == "0");
    CHECK(off);
  }
}
