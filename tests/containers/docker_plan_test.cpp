#include "containers/docker_plan.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "containers/link_rate.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

const Engine kDocker{EngineKind::docker, {"docker"}, "/var/run/docker.sock", {}, false};

EnvironmentProfile cross() {
  EnvironmentProfile profile;
  profile.name = "cross-docker";
  profile.kind = EnvironmentKind::cross_docker;
  profile.ranks_per_container = 1;
  profile.network = profile.ipc = profile.uts = profile.pid = Sharing::private_;
  profile.shm_size = Bytes(1U << 30);
  profile.capabilities = {{"SYS_PTRACE", "CMA"}};
  return profile;
}

EnvironmentProfile single() {
  EnvironmentProfile profile = cross();
  profile.name = "single-docker";
  profile.kind = EnvironmentKind::single_docker;
  profile.ranks_per_container = 0;
  profile.launcher = LauncherPlace::inside;
  return profile;
}

StartRequest request(int ranks) { return {"run-7", ranks, {"/build", "/results"}}; }

DockerSite site() {
  DockerSite site;
  site.name = "dyn-0a1b2c3d-0";
  site.run_folder = "/tmp/dynamiccl-0/dyn-0a1b2c3d-0";
  site.owner = "42.100.abcdef01";
  site.image = "dynamiccl-worker:0123456789abcdef";
  site.subnet_prefix = "172.30.9";
  return site;
}

std::string argv_of(const EnvironmentPlan& plan, std::size_t index) {
  return join(plan.containers.at(index).run_argv, " ");
}

constexpr const char* kCommon =
    "--label dynamiccl.run=run-7 --label dynamiccl.owner=42.100.abcdef01 ";
constexpr const char* kTail =
    "--env OMPI_ALLOW_RUN_AS_ROOT=1 --env OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
    "--volume /tmp/dynamiccl-0/dyn-0a1b2c3d-0:/tmp/dynamiccl-0/dyn-0a1b2c3d-0 "
    "--volume /build:/build --volume /results:/results dynamiccl-worker:0123456789abcdef sleep "
    "infinity";

}  // namespace

TEST_CASE("single-docker: one container with all ranks and the launcher (B-03)") {
  const EnvironmentPlan plan = plan_docker(kDocker, single(), request(4), site());
  REQUIRE(plan.containers.size() == 1);
  CHECK(argv_of(plan, 0) ==
        std::string("docker run --detach --rm --name dyn-0a1b2c3d-0-0 --init ") + kCommon +
            "--network dyn-0a1b2c3d-0 --ip 172.30.9.10 --hostname "
            "dyn-0a1b2c3d-0-0 --ipc private --shm-size 1073741824b --cap-add "
            "SYS_PTRACE " +
            kTail);
  CHECK(join(plan.shape.launcher_prefix, " ") == "docker exec --interactive dyn-0a1b2c3d-0-0");
  REQUIRE(plan.shape.hosts.size() == 1);
  CHECK(plan.shape.hosts[0].name == "localhost");
  CHECK(plan.shape.hosts[0].slots == 4);
  CHECK(plan.shape.launch_agent.empty());
}

TEST_CASE("programs that root runs afterwards cannot be changed from inside") {
  StartRequest asked = request(2);
  asked.binds = {"/results"};
  asked.programs = {"/build"};
  for (const auto& profile : {single(), cross()}) {
    const auto argv = argv_of(plan_docker(kDocker, profile, asked, site()), 0);
    CHECK_THAT(argv, ContainsSubstring(" --volume /build:/build:ro "));
    CHECK_THAT(argv, ContainsSubstring(" --volume /results:/results "));
    CHECK_THAT(argv, !ContainsSubstring("--privileged") && !ContainsSubstring("docker.sock"));
  }
}

TEST_CASE("CPUs and CPU time of a profile are flags of every container") {
  EnvironmentProfile profile = cross();
  profile.cpus = "0,2-3";
  profile.cpu_limit = 1.5;
  const EnvironmentPlan plan = plan_docker(kDocker, profile, request(2), site());
  for (const std::size_t index : {0U, 1U})
    CHECK_THAT(argv_of(plan, index), ContainsSubstring(" --cpuset-cpus 0,2-3 --cpus 1.5 "));
}

TEST_CASE("what a profile gives its containers besides are flags, its own last") {
  EnvironmentProfile profile = cross();
  profile.options = {Bytes(64U << 20),   99, {"nofile=64"}, 576, "own:1", {"/data:/data:ro"},
                     {"--hostname", "a"}};
  const EnvironmentPlan plan = plan_docker(kDocker, profile, request(2), site());
  CHECK_THAT(join(plan.network.create, " "),
             ContainsSubstring(" --opt com.docker.network.driver.mtu=576 "));
  for (const std::size_t index : {0U, 1U})
    CHECK_THAT(argv_of(plan, index),
               ContainsSubstring(" --memory 67108864b --memory-swap 67108864b --pids-limit 99 "
                                 "--ulimit nofile=64 --volume /data:/data:ro --pull never "
                                 "--hostname a own:1 sleep infinity"));
}

TEST_CASE("one memory folder of the machine is every container's, where the profile says") {
  EnvironmentProfile profile = cross();
  CHECK(plan_docker(kDocker, profile, request(2), site()).tmpfs.empty());
  profile.shm_size = Bytes(0);
  profile.shared_tmpfs = "/dev/shm";
  const EnvironmentPlan plan = plan_docker(kDocker, profile, request(2), site());
  CHECK(plan.tmpfs == "/dev/shm/dyn-0a1b2c3d-0");
  for (const std::size_t index : {0U, 1U}) {
    CHECK_THAT(argv_of(plan, index),
               ContainsSubstring(" --volume /dev/shm/dyn-0a1b2c3d-0:/dev/shm "));
    CHECK_THAT(argv_of(plan, index), !ContainsSubstring("--shm-size"));
  }
}

TEST_CASE("cross-docker: one container per rank on a network of its own (B-04)") {
  const EnvironmentPlan plan = plan_docker(kDocker, cross(), request(2), site());
  CHECK(join(plan.network.create, " ") ==
        "docker network create --label dynamiccl.run=run-7 --label dynamiccl.owner=42.100.abcdef01 "
        "--subnet 172.30.9.0/24 --gateway 172.30.9.1 dyn-0a1b2c3d-0");
  REQUIRE(plan.containers.size() == 2);
  CHECK_THAT(argv_of(plan, 1),
             ContainsSubstring("--ip 172.30.9.11 --hostname dyn-0a1b2c3d-0-1 --ipc private"));
  REQUIRE(plan.shape.hosts.size() == 2);
  CHECK(plan.shape.hosts[1].name == "dyn-0a1b2c3d-0-1");
  CHECK(plan.shape.hosts[1].address == "172.30.9.11");
  CHECK(plan.shape.subnet == "172.30.9.0/24");
  CHECK(plan.shape.host_address == "172.30.9.1");
  CHECK(plan.shape.interface == "eth0");
  CHECK(plan.shape.launch_agent == "/tmp/dynamiccl-0/dyn-0a1b2c3d-0/launch-agent");
}

TEST_CASE("no profile ever gets --privileged or a pinned core") {
  for (const EnvironmentProfile& profile : {single(), cross()})
    for (const auto& container : plan_docker(kDocker, profile, request(3), site()).containers)
      for (const std::string& argument : container.run_argv) {
        CHECK_THAT(argument, !ContainsSubstring("--privileged"));
        CHECK_THAT(argument, !ContainsSubstring("--cpuset"));
      }
}

TEST_CASE("host sharing makes no network and sizes no /dev/shm") {
  EnvironmentProfile profile = cross();
  profile.network = profile.ipc = profile.uts = profile.pid = Sharing::host;
  profile.capabilities.clear();
  const EnvironmentPlan plan = plan_docker(kDocker, profile, request(2), site());
  CHECK(plan.network.name.empty());
  CHECK(plan.network.create.empty());
  CHECK(argv_of(plan, 0) == std::string("docker run --detach --rm --name dyn-0a1b2c3d-0-0 ") +
                                kCommon + "--network host --ipc host --pid host --uts host " +
                                kTail);
  CHECK(plan.shape.subnet.empty());
  CHECK(plan.shape.interface == "lo");
}

TEST_CASE("shared: the first container owns the namespaces, the others join") {
  EnvironmentProfile profile = cross();
  profile.network = profile.ipc = profile.pid = Sharing::shared;
  const EnvironmentPlan plan = plan_docker(kDocker, profile, request(2), site());
  CHECK_THAT(argv_of(plan, 0),
             ContainsSubstring("--network dyn-0a1b2c3d-0 --ip 172.30.9.10 --hostname "
                               "dyn-0a1b2c3d-0-0 --ipc shareable --shm-size 1073741824b"));
  CHECK_THAT(argv_of(plan, 1),
             ContainsSubstring("--network container:dyn-0a1b2c3d-0-0 --ipc "
                               "container:dyn-0a1b2c3d-0-0 --pid container:dyn-0a1b2c3d-0-0 "
                               "--cap-add"));
  CHECK(plan.shape.hosts[1].address == plan.shape.hosts[0].address);
}

TEST_CASE("several ranks per container: the last one takes the rest") {
  EnvironmentProfile profile = cross();
  profile.ranks_per_container = 2;
  const EnvironmentPlan plan = plan_docker(kDocker, profile, request(5), site());
  REQUIRE(plan.shape.hosts.size() == 3);
  CHECK(plan.shape.hosts[0].slots == 2);
  CHECK(plan.shape.hosts[2].slots == 1);
  const auto argv =
      plan.rank_command(3, {"/build/worker", "run.json"}, {{"RANK", "3"}, {"NAME", "a b"}});
  CHECK(argv == std::vector<std::string>{"docker", "exec", "--env", "NAME=a b", "--env", "RANK=3",
                                         "dyn-0a1b2c3d-0-1", "/build/worker", "run.json"});
  CHECK_THROWS_AS(plan.rank_command(5, {"x"}, {}), Error);
}

TEST_CASE("what no engine can do is refused with the key to change") {
  EnvironmentProfile inside = cross();
  inside.launcher = LauncherPlace::inside;
  CHECK_THROWS_WITH(plan_docker(kDocker, inside, request(2), site()),
                    ContainsSubstring("ranks_per_container"));
  CHECK_THROWS_WITH(plan_docker(kDocker, cross(), request(1000), site()),
                    ContainsSubstring("1000 containers"));
}

TEST_CASE("an ordinary user's containers write files as that user") {
  DockerSite user_site = site();
  user_site.user = "1000:1000";
  const EnvironmentPlan plan = plan_docker(kDocker, single(), request(1), user_site);
  CHECK_THAT(argv_of(plan, 0),
             ContainsSubstring("--user 1000:1000") && !ContainsSubstring("OMPI_ALLOW_RUN_AS_ROOT"));
}

TEST_CASE("GPUs: one per rank's container, or all in each") {
  DockerSite gpu_site = site();
  gpu_site.gpus = {{0}, {1}};
  gpu_site.gpu_passing = GpuPassing::toolkit;
  EnvironmentProfile profile = cross();
  profile.gpus = GpuVisibility::one_per_rank;
  CHECK_THAT(argv_of(plan_docker(kDocker, profile, request(2), gpu_site), 1),
             ContainsSubstring("--gpus \"device=1\""));
  profile.gpus = GpuVisibility::all;
  CHECK_THAT(argv_of(plan_docker(kDocker, profile, request(2), gpu_site), 1),
             ContainsSubstring("--gpus \"device=0,1\""));
  profile.gpus = GpuVisibility::none;
  CHECK_THAT(argv_of(plan_docker(kDocker, profile, request(2), gpu_site), 1),
             !ContainsSubstring("--gpus"));
}

TEST_CASE("Podman's own flags stand in every run") {
  const Engine podman{EngineKind::podman, {"podman"}, "", {"--runtime", "runc"}, false};
  CHECK_THAT(argv_of(plan_docker(podman, cross(), request(2), site()), 1),
             ContainsSubstring("--runtime runc"));
}

TEST_CASE("the launch agent skips ssh's options and enters the container that is the host") {
  const Engine other{EngineKind::docker, {"docker", "--host", "unix:///run/a b"}, "", {}, false};
  CHECK_THAT(launch_agent_text(other),
             ContainsSubstring("exec docker --host 'unix:///run/a b' exec --interactive"));
}

TEST_CASE("a free network avoids the host's routes and those taken meanwhile") {
  const std::string first = free_subnet_prefix("dyn-1-0", {}, 0);
  const auto third = static_cast<unsigned>(std::stoul(first.substr(first.rfind('.') + 1)));
  const unsigned route = (172U << 24) | (30U << 16) | (third << 8);
  CHECK(free_subnet_prefix("dyn-1-0", {route}, 0) != first);
  CHECK(free_subnet_prefix("dyn-1-0", {route}, 0) == free_subnet_prefix("dyn-1-0", {}, 1));
  std::vector<unsigned> all;
  for (unsigned i = 0; i < 256; ++i) all.push_back((172U << 24) | (30U << 16) | (i << 8));
  CHECK_THROWS_AS(free_subnet_prefix("dyn-1-0", all, 0), Error);
}

TEST_CASE("a link is capped by a token bucket of 2 ms, at least 256 KiB") {
  CHECK(join(link_limit_argv("veth1", 1e9), " ") ==
        "tc qdisc add dev veth1 root tbf rate 1000000000bit burst 262144b latency 50ms");
  CHECK_THAT(join(link_limit_argv("veth1", 10e9), " "), ContainsSubstring("burst 2500000b"));
}
