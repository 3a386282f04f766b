#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "containers/engine_choice.hpp"
#include "containers/private_engine.hpp"
#include "profiles/detect/facts.hpp"
#include "profiles/detect/promise_check.hpp"
#include "profiles/detect/regime.hpp"
#include "profiles/profile.hpp"

using namespace dynamiccl;
using nlohmann::json;

namespace {

struct Output {
  int code = -1;
  std::string text;
};

Output run(const std::string& command) {
  Output output;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return output;
  char buffer[4096];
  while (const std::size_t count = fread(buffer, 1, sizeof buffer, pipe))
    output.text.append(buffer, count);
  output.code = pclose(pipe);
  return output;
}

/// An image that holds the static probe and nothing else, and the containers made of it; all gone
/// with the object.
class ProbeContainers {
 public:
  ProbeContainers() : image_("dynamiccl-probe-test:" + std::to_string(getpid())) {
    const std::string folder = std::filesystem::path(DYNAMICCL_BINARY_DIR).string();
    const auto made = run("tar -C " + folder + " -c dynamiccl-probe | docker import - " + image_);
    REQUIRE(made.code == 0);
  }
  ~ProbeContainers() {
    for (const std::string& name : names_) run("docker rm -f " + name);
    run("docker rmi " + image_);
  }
  ProbeContainers(const ProbeContainers&) = delete;
  ProbeContainers& operator=(const ProbeContainers&) = delete;

  /// Starts a container that lives until the object goes. @returns its name
  std::string start(const std::string& flags) {
    const std::string name =
        "dynamiccl-probe-test-" + std::to_string(getpid()) + "-" + std::to_string(names_.size());
    names_.push_back(name);
    const auto started = run("docker run -d -i --name " + name + " " + flags + " " + image_ +
                             " /dynamiccl-probe --hold");
    INFO(started.text);
    REQUIRE(started.code == 0);
    return name;
  }
  [[nodiscard]] static json facts_in(const std::string& name) {
    const auto probed = run("docker exec " + name + " /dynamiccl-probe --compact");
    INFO(probed.text);
    REQUIRE(probed.code == 0);
    return json::parse(probed.text);
  }

 private:
  std::string image_;
  std::vector<std::string> names_;
};

/// The machine's own dockerd where one answers, else the program's, until this process ends.
void skip_without_engine() {
  if (run("docker info").code == 0) return;
  const EngineSearch search = find_engine();
  if (!search.engine || !search.engine->is_private)
    SKIP("no docker engine answers, and none can be started: " << search.reason);
  hold_private_engine();
  setenv("DOCKER_HOST", ("unix://" + search.engine->socket).c_str(), 1);
}

HelloRecord hello(int rank, int world) {
  HelloRecord record;
  record.rank = rank;
  record.world_size = world;
  return record;
}

std::string violations(const std::string& profile, const std::vector<FactsRecord>& facts) {
  static const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  const int ranks = static_cast<int>(facts.size());
  std::vector<HelloRecord> hellos;
  for (int rank = 0; rank < ranks; ++rank) hellos.push_back(hello(rank, ranks));
  return to_text(
      check_promise({promise_of(profiles.at(profile)), ranks, 1}, probe_host(), hellos, facts));
}

}  // namespace

TEST_CASE("real containers keep the promises of their profiles and break the others'", "[B-08]") {
  skip_without_engine();
  ProbeContainers containers;
  const auto first = ProbeContainers::facts_in(containers.start(""));
  const auto second = ProbeContainers::facts_in(containers.start(""));
  CHECK(first["container"]["runtime"] == "docker");
  CHECK(first["container"]["id"] != second["container"]["id"]);
  CHECK(violations("cross-docker", {{0, first}, {1, second}}) == "");
  CHECK(violations("single-docker", {{0, first}, {1, first}}) == "");
  CHECK(violations("single-docker", {{0, first}, {1, second}}).find("containers: ") == 0);
  CHECK(violations("cross-docker", {{0, first}, {1, first}}).find("share one container") !=
        std::string::npos);
  CHECK(violations("cross-docker-host-network", {{0, first}, {1, second}})
            .find("left the host's \"net\"") != std::string::npos);
  CHECK(violations("bare-metal", {{0, first}, {1, first}}).find("runtime: ") == 0);
  const auto regime = derive_regime({first, second}, {});
  CHECK(regime.name.starts_with(
      "cross-docker / apart: net ipc uts pid / no shared link / tcp eth-virtual / no GPU / "));
}

TEST_CASE("containers on the host's namespaces are seen to share them", "[B-24]") {
  skip_without_engine();
  ProbeContainers containers;
  const std::string flags = "--network host --ipc host --uts host";
  const auto first = ProbeContainers::facts_in(containers.start(flags));
  const auto second = ProbeContainers::facts_in(containers.start(flags));
  CHECK(violations("cross-docker-shared", {{0, first}, {1, second}}) == "");
  CHECK(violations("cross-docker", {{0, first}, {1, second}}).find("shared the host's \"net\"") !=
        std::string::npos);
  CHECK(first["shm"]["device"] == second["shm"]["device"]);
  CHECK(derive_regime({first, second}, {}).name.starts_with("cross-docker / apart: pid / shm / "));
}

TEST_CASE("one container's IPC namespace given to another is shared between the two only") {
  skip_without_engine();
  ProbeContainers containers;
  const std::string owner = containers.start("--ipc shareable --shm-size 2m");
  const auto first = ProbeContainers::facts_in(owner);
  const auto second = ProbeContainers::facts_in(containers.start("--ipc container:" + owner));
  CHECK(violations("cross-docker-shared-ipc", {{0, first}, {1, second}}) == "");
  CHECK(first["shm"]["size_bytes"] == 2 << 20);
  CHECK(derive_regime({first, second}, {}).name.find("(small /dev/shm)") != std::string::npos);
}

TEST_CASE("CMA follows the capability, and limits are read from inside") {
  skip_without_engine();
  ProbeContainers containers;
  const auto plain = ProbeContainers::facts_in(containers.start("--cpus 1.5 -m 256m"));
  const auto traced = ProbeContainers::facts_in(containers.start("--cap-add SYS_PTRACE"));
  CHECK(traced["cma"]["allowed"] == true);
  CHECK(traced["process"]["capabilities"]["sys_ptrace"] == true);
  CHECK(plain["process"]["capabilities"]["sys_ptrace"] == false);
  CHECK(plain["cgroup"]["cpu_limit_cores"] == 1.5);
  CHECK(plain["cgroup"]["memory_limit_bytes"] == 256ULL << 20);
}
