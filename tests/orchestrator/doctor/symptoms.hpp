#pragma once

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <set>
#include <string>

#include "core/vocabulary/json.hpp"
#include "orchestrator/doctor/causes.hpp"

/// Symptoms made by hand, for tests of the causes.
namespace dynamiccl::testing {

using nlohmann::json;

inline const std::map<std::string, EnvironmentProfile>& profiles() {
  static const auto known = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  return known;
}

/// A rank of a machine with two cores; `container` tells its namespaces from another's.
inline json rank_in(int container) {
  return {
      {"system", {{"boot_id", "b"}, {"hostname", "w" + std::to_string(container)}}},
      {"namespaces",
       {{"net", container},
        {"ipc", container},
        {"uts", container},
        {"pid", container},
        {"user", 1},
        {"mnt", container}}},
      {"shm", {{"device", container}, {"size_bytes", std::uint64_t{1} << 30}}},
      {"cma", {{"allowed", true}, {"outcome", "read 8 bytes of a child process"}}},
      {"process", {{"affinity", {0, 1}}, {"capabilities", {{"sys_ptrace", true}}}, {"seccomp", 2}}},
      {"cpu", {{"core_cpus", json::array({{0}, {1}})}}},
      {"cgroup", json::object()},
      {"libraries", {{"blas", "openblas"}}},
      {"network",
       {{"interfaces",
         {{{"name", "lo"}, {"kind", "loopback"}, {"addresses", {"127.0.0.1"}}},
          {{"name", "docker0"}, {"kind", "bridge"}, {"addresses", {"172.17.0.1/16"}}},
          {{"name", "br-idle"}, {"kind", "bridge"}, {"addresses", json::array()}},
          {{"name", "eth0"}, {"kind", "ethernet"}, {"addresses", {"192.0.2.2"}}}}}}}};
}

inline BackendLook look(Backend backend, const std::string& used, const std::string& asked) {
  BackendLook seen;
  seen.backend = backend;
  seen.used = used;
  seen.asked = asked;
  return seen;
}

/// Both ranks in one container, nothing wrong with it.
inline Symptoms healthy() {
  Symptoms symptoms;
  symptoms.profile = profiles().at("single-docker");
  symptoms.host = rank_in(0);
  symptoms.facts = {rank_in(1), rank_in(1)};
  symptoms.looks = {look(Backend::openmpi, "cma", "cma"), look(Backend::mpich, "cma", "cma"),
                    look(Backend::gloo, "tcp", "tcp")};
  for (auto& seen : symptoms.looks) seen.facts = symptoms.facts;
  return symptoms;
}

/// A container for each rank on a bridge.
inline Symptoms cross() {
  Symptoms symptoms = healthy();
  symptoms.profile = profiles().at("cross-docker");
  symptoms.facts = {rank_in(1), rank_in(2)};
  for (auto& seen : symptoms.looks) {
    seen.facts = symptoms.facts;
    seen.used = seen.asked = "tcp";
    seen.many_hosts = true;
  }
  symptoms.looks[0].mca["btl_tcp_if_include"] = "172.30.1.0/24";
  return symptoms;
}

inline std::set<std::string> ids(const Symptoms& symptoms) {
  std::set<std::string> found;
  for (const auto& finding : find_causes(symptoms)) found.insert(std::string(finding.cause->id));
  return found;
}

inline Finding only(const Symptoms& symptoms, const std::string& id) {
  for (auto& finding : find_causes(symptoms))
    if (finding.cause->id == id) return finding;
  FAIL("not found: " << id);
  return {};
}

using Ids = std::set<std::string>;

/// Containers on the host's network, whose docker0 every rank sees.
inline Symptoms on_host_network() {
  Symptoms symptoms = cross();
  symptoms.profile = profiles().at("cross-docker-host-network");
  for (auto& facts : symptoms.facts) facts["namespaces"]["net"] = 0;
  return symptoms;
}

}  // namespace dynamiccl::testing
