#include "profiles/detect/promise_check.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "profiles/detect/binding_check.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

json machine(int base, const char* runtime, const std::vector<int>& affinity = {0, 1}) {
  json facts;
  facts["system"] = {{"boot_id", "boot"}, {"hostname", "h"}};
  for (const char* name : {"net", "ipc", "uts", "pid", "mnt"}) facts["namespaces"][name] = base;
  facts["namespaces"]["user"] = 1;
  facts["shm"] = {{"device", base}};
  facts["container"] = {{"runtime", runtime}};
  facts["process"] = {{"affinity", affinity}};
  facts["cpu"] = {{"core_cpus", json::array({{0}, {1}})}};
  return facts;
}

ProfilePromise cross_promise() {
  ProfilePromise promise;
  promise.environment = "cross-docker";
  promise.runtimes = {"docker", "podman"};
  promise.ranks_per_container = 1;
  for (const char* name : {"net", "ipc", "uts", "pid", "mnt", "shm"})
    promise.namespaces.push_back({name, false, false});
  promise.namespaces.push_back({"user", std::nullopt, true});
  return promise;
}

ProfilePromise bare_promise() {
  ProfilePromise promise;
  promise.environment = "bare-metal";
  promise.runtimes = {"none"};
  for (const char* name : {"net", "ipc", "uts", "pid", "mnt", "shm", "user"})
    promise.namespaces.push_back({name, true, true});
  return promise;
}

HelloRecord hello(int rank, int world = 2) {
  HelloRecord record;
  record.rank = rank;
  record.world_size = world;
  record.launch_id = "l";
  record.library_version = "4.1.4";
  return record;
}

const std::vector<HelloRecord> kTwo{hello(0), hello(1)};

std::string violations(const ProfilePromise& promise, const std::vector<FactsRecord>& facts,
                       const std::vector<HelloRecord>& hellos = kTwo) {
  return to_text(check_promise({promise, 2, 1}, machine(1, "none"), hellos, facts));
}

}  // namespace

TEST_CASE("a launch that is what its profile promised has no violation") {
  CHECK(violations(bare_promise(), {{0, machine(1, "none")}, {1, machine(1, "none")}}) == "");
  CHECK(violations(cross_promise(), {{0, machine(2, "docker")}, {1, machine(3, "docker")}}) == "");
}

TEST_CASE("N one-rank jobs are no job, whatever their exit code") {
  const std::vector<FactsRecord> facts{{0, machine(1, "none")}, {1, machine(1, "none")}};
  CHECK_THAT(
      violations(bare_promise(), facts, {hello(0, 1), hello(0, 1)}),
      ContainsSubstring("world_size: ranks 0, 0 counted 1 rank(s) in the world instead of 2: "
                        "the launcher started separate one-rank jobs"));
  CHECK_THAT(violations(bare_promise(), facts, {hello(0, 1), hello(0, 1)}),
             ContainsSubstring("ranks: rank 1 of 2 never started"));
  auto stranger = hello(1);
  stranger.launch_id = "other";
  CHECK_THAT(violations(bare_promise(), facts, {hello(0), stranger}),
             ContainsSubstring("the ranks belong to different launches: l, other"));
}

TEST_CASE("a rank that wrote nothing, or twice, is a violation") {
  CHECK_THAT(violations(bare_promise(), {{0, machine(1, "none")}}),
             ContainsSubstring("facts: rank 1 of 2 never wrote facts"));
  CHECK_THAT(violations(bare_promise(), {{0, machine(1, "none")}, {0, machine(1, "none")}}),
             ContainsSubstring("facts: rank 0 wrote facts twice or out of range"));
  CHECK_THAT(violations(bare_promise(), {}),
             ContainsSubstring("ranks 0, 1 of 2 never wrote facts"));
}

TEST_CASE("ranks with different library versions are a violation") {
  auto other = hello(1);
  other.library_version = "5.0.0";
  CHECK_THAT(
      violations(bare_promise(), {{0, machine(1, "none")}, {1, machine(1, "none")}},
                 {hello(0), other}),
      ContainsSubstring("library: the ranks loaded different library versions: rank 0 loaded "
                        "4.1.4, rank 1 loaded 5.0.0"));
}

TEST_CASE("a rank that says no library version agrees with all") {
  auto server = hello(1);
  server.library_version.clear();
  CHECK_THAT(violations(bare_promise(), {{0, machine(1, "none")}, {1, machine(1, "none")}},
                        {hello(0), server}),
             !ContainsSubstring("library:"));
}

TEST_CASE("a profile that lies about its namespaces is found out, each in its own words") {
  // Promised apart, but the network namespace is one for both containers.
  auto second = machine(3, "docker");
  second["namespaces"]["net"] = 2;
  CHECK(
      violations(cross_promise(), {{0, machine(2, "docker")}, {1, second}}) ==
      "namespaces: ranks 0, 1 share \"net\", but profile \"cross-docker\" promises the ranks to be "
      "apart");
  // Promised apart from the host, but --ipc=host.
  auto host_ipc = machine(3, "docker");
  host_ipc["namespaces"]["ipc"] = 1;
  CHECK_THAT(
      violations(cross_promise(), {{0, machine(2, "docker")}, {1, host_ipc}}),
      ContainsSubstring("rank 1 shared the host's \"ipc\", but profile \"cross-docker\" promises "
                        "another"));
  // Promised the host's, but a namespace of its own.
  auto own_uts = machine(1, "none");
  own_uts["namespaces"]["uts"] = 9;
  CHECK_THAT(
      violations(bare_promise(), {{0, machine(1, "none")}, {1, own_uts}}),
      ContainsSubstring("rank 1 left the host's \"uts\", but profile \"bare-metal\" promises the "
                        "host's"));
  // Promised to share, but apart.
  auto promise = cross_promise();
  promise.namespaces[1].between_ranks = true;
  CHECK_THAT(violations(promise, {{0, machine(2, "docker")}, {1, machine(3, "docker")}}),
             ContainsSubstring("ranks 0, 1 are apart in \"ipc\""));
}

TEST_CASE("a namespace that is not known breaks the promise instead of keeping it") {
  auto blind = machine(3, "docker");
  blind["namespaces"]["net"] = nullptr;
  blind["namespaces"]["unknown"]["net"] = "permission denied";
  CHECK_THAT(violations(cross_promise(), {{0, machine(2, "docker")}, {1, blind}}),
             ContainsSubstring("is not known (permission denied)"));
}

TEST_CASE("the wrong runtime, number of containers or of hosts is a violation") {
  CHECK_THAT(
      violations(cross_promise(), {{0, machine(2, "singularity")}, {1, machine(3, "docker")}}),
      ContainsSubstring("runtime: rank 0 runs under \"singularity\", but profile \"cross-docker\" "
                        "promises docker or podman"));
  const auto one =
      violations(cross_promise(), {{0, machine(2, "docker")}, {1, machine(2, "docker")}});
  CHECK_THAT(one, ContainsSubstring("containers: the ranks run in 1 container(s), but profile "
                                    "\"cross-docker\" promises 2 for 2 ranks"));
  CHECK_THAT(one, ContainsSubstring("ranks 0, 1 share one container"));
  auto elsewhere = machine(3, "docker");
  elsewhere["system"]["boot_id"] = "another";
  CHECK_THAT(violations(cross_promise(), {{0, machine(2, "docker")}, {1, elsewhere}}),
             ContainsSubstring("hosts: the ranks run on 2 host(s) instead of 1"));
}

TEST_CASE("podman keeps a promise of docker") {
  CHECK(violations(cross_promise(), {{0, machine(2, "podman")}, {1, machine(3, "podman")}}) == "");
}

TEST_CASE("inside a container the container itself is the bare machine") {
  const auto host = machine(5, "docker");
  CHECK(check_promise({bare_promise(), 2, 1}, host, kTwo,
                      {{0, machine(5, "docker")}, {1, machine(5, "docker")}})
            .empty());
}

TEST_CASE("two containers bound to one core are a defect while another core is free") {
  const std::vector<FactsRecord> crowded{{0, machine(2, "docker", {0})},
                                         {1, machine(3, "docker", {0})}};
  CHECK_THAT(
      violations(cross_promise(), crowded),
      ContainsSubstring("binding: only 1 of 2 ranks can have a core of their own, though 2 cores "
                        "are there: rank 0 on core 0; rank 1 on core 0"));
  CHECK(violations(cross_promise(),
                   {{0, machine(2, "docker", {0})}, {1, machine(3, "docker", {1})}}) == "");
  CHECK(violations(cross_promise(),
                   {{0, machine(2, "docker", {0, 1})}, {1, machine(3, "docker", {0, 1})}}) == "");
}

TEST_CASE("a profile that binds its ranks itself is not held against their binding") {
  auto promise = cross_promise();
  promise.binding_is_its_own = true;
  CHECK(violations(promise, {{0, machine(2, "docker", {0})}, {1, machine(3, "docker", {0})}}) ==
        "");
}

TEST_CASE("sharing a core is no defect where no other is offered") {
  const std::vector<FactsRecord> crowded{{0, machine(1, "none", {0})},
                                         {1, machine(1, "none", {0})}};
  // The user bound the measuring program itself to one core.
  CHECK(check_promise({bare_promise(), 2, 1}, machine(1, "none", {0}), kTwo, crowded).empty());
  // More ranks than cores, spread over all of them.
  const std::vector<HelloRecord> four{hello(0, 4), hello(1, 4), hello(2, 4), hello(3, 4)};
  std::vector<FactsRecord> spread;
  for (int rank = 0; rank < 4; ++rank) spread.push_back({rank, machine(1, "none", {rank % 2})});
  CHECK(check_promise({bare_promise(), 4, 1}, machine(1, "none"), four, spread).empty());
}

TEST_CASE("hardware threads of one core count as that core") {
  auto first = machine(1, "none", {0});
  auto second = machine(1, "none", {2});
  auto host = machine(1, "none", {0, 1, 2, 3});
  for (auto* facts : {&first, &second, &host})
    (*facts)["cpu"]["core_cpus"] = json::array({{0, 2}, {1, 3}});
  CHECK_THAT(to_text(check_promise({bare_promise(), 2, 1}, host, kTwo, {{0, first}, {1, second}})),
             ContainsSubstring("binding: only 1 of 2 ranks"));
}

TEST_CASE("facts of any shape are met without throwing") {
  CHECK_FALSE(violations(cross_promise(), {{0, nullptr}, {1, 7}}).empty());
  CHECK_FALSE(violations(bare_promise(), {{0, json::array()}, {1, "x"}}).empty());
}

TEST_CASE("where ranks were let run is said of many ranks at once, with and without numbers") {
  const auto rank_on = [](int rank, const std::vector<int>& cpus) {
    FactsRecord record{rank, machine(1, "none", cpus)};
    record.facts["cpu"]["core_cpus"] = json::array({{0, 4}, {1, 5}, {2, 6}, {3, 7}});
    return record;
  };
  const std::vector<int> all{0, 1, 2, 3, 4, 5, 6, 7};
  const auto free = core_placement({rank_on(0, all), rank_on(1, all), rank_on(2, all)});
  REQUIRE(free);
  CHECK(free->cpus == "ranks 0-2 on CPUs 0-7; 3 of 3 ranks can have a core of their own");
  CHECK(free->shape == "ranks 0-2 on all CPUs; 3 of 3 ranks can have a core of their own");
  // CPUs 0 and 4 are one core.
  const auto siblings = core_placement({rank_on(0, {0}), rank_on(1, {4}), rank_on(2, {1, 2, 5})});
  REQUIRE(siblings);
  CHECK(siblings->cpus ==
        "rank 0 on CPU 0, rank 1 on CPU 4, rank 2 on CPUs 1-2,5; 2 of 3 ranks "
        "can have a core of their own");
  CHECK(siblings->shape ==
        "ranks 0-1 on 1 CPU of 1 core, rank 2 on 3 CPUs of 2 cores; 2 of 3 "
        "ranks can have a core of their own");
  CHECK(siblings->layout == free->layout);
  auto elsewhere = rank_on(1, {0});
  elsewhere.facts["system"]["boot_id"] = "another";
  const auto two_hosts = core_placement({rank_on(0, {0}), elsewhere});
  REQUIRE(two_hosts);
  CHECK(two_hosts->cpus == "ranks 0-1 on CPU 0; 2 of 2 ranks can have a core of their own");
  CHECK_FALSE(core_placement({}));
  CHECK_FALSE(core_placement({{0, json::object()}}));
}

TEST_CASE("ranks on several machines are held against their own machine") {
  const auto on = [](const char* boot, const char* host, int base) {
    json facts = machine(base, "none");
    facts["system"] = {{"boot_id", boot}, {"hostname", host}};
    return facts;
  };
  const auto found = [](const std::vector<json>& hosts, const std::vector<FactsRecord>& facts,
                        int expected) {
    return to_text(check_promise({bare_promise(), 2, expected}, hosts, kTwo, facts));
  };
  // Two machines, and two nodes of one kernel.
  for (const char* second : {"boot2", "boot1"}) {
    const std::vector<json> hosts{on("boot1", "n1", 1), on(second, "n2", 2)};
    CHECK(found(hosts, {{0, hosts[0]}, {1, hosts[1]}}, 2) == "");
    CHECK_THAT(found(hosts, {{0, hosts[0]}, {1, hosts[0]}}, 2), ContainsSubstring("hosts"));
    // A rank that is not in its own machine's namespaces.
    CHECK_THAT(found(hosts, {{0, hosts[0]}, {1, on(second, "n2", 3)}}, 2),
               ContainsSubstring("namespaces"));
  }
}

TEST_CASE("a container for all of a machine's ranks is one on each machine") {
  const auto on = [](const char* boot, int base) {
    json facts = machine(base, "docker");
    facts["system"]["boot_id"] = boot;
    return facts;
  };
  auto promise = cross_promise();
  promise.ranks_per_container = 64;
  const std::vector<json> hosts{machine(1, "none"), machine(1, "none")};
  CHECK_THAT(to_text(check_promise({promise, 2, 2}, hosts, kTwo,
                                   {{0, on("boot1", 2)}, {1, on("boot2", 3)}})),
             !ContainsSubstring("containers:"));
  CHECK_THAT(violations(promise, {{0, on("boot", 2)}, {1, on("boot", 3)}}),
             ContainsSubstring("the ranks run in 2 container(s), but profile \"cross-docker\" "
                               "promises 1 for 2 ranks"));
}
