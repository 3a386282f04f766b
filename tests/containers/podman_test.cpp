#include "containers/docker.hpp"
#include "containers/engine_choice.hpp"
#include "containers/paths.hpp"
#include "real_support.hpp"

using namespace dynamiccl;

namespace {

/// What would be chosen on this machine if it had no Docker.
Engine podman_here() {
  EngineFacts facts = look_at_machine();
  facts.docker_client = facts.dockerd = facts.dockerd_running = false;
  facts.docker_sockets.clear();
  const EngineSearch search = choose_engine(facts);
  if (!search.engine) SKIP(search.reason);
  return *search.engine;
}

std::string namespace_in(const Environment& environment, int rank, const char* file) {
  return output_in(environment, rank, {"readlink", std::string("/proc/self/ns/") + file});
}

}  // namespace

TEST_CASE("Podman runs the same image and keeps cross-docker's promises") {
  const Engine podman = podman_here();
  import_image(podman, {});
  const StartRequest request = test_request("podman");
  const auto environment = start_docker_in(podman, shipped("cross-docker"), request);
  for (const char* file : {"net", "ipc", "uts", "pid"})
    CHECK(namespace_in(*environment, 0, file) != namespace_in(*environment, 1, file));
  CHECK(environment->provenance().at("engine") == "podman");

  const LaunchShape shape = environment->shape();
  CHECK(run_command({shape.launch_agent, "-x", shape.hosts[1].name, "hostname"}).out ==
        shape.hosts[1].name + "\n");
  const CommandResult reached = run_command(
      {"mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "--mca", "plm_rsh_agent",
       shape.launch_agent, "--mca", "oob_tcp_if_include", shape.subnet, "--host",
       shape.hosts[0].name + ":1," + shape.hosts[1].name + ":1", "-n", "2", "hostname"});
  INFO(reached.err);
  CHECK(reached.exit_code == 0);
  CHECK(run_command(environment->plan().kill_command).exit_code == 0);

  environment->stop();
  const std::string label = "label=dynamiccl.run=" + request.run_id;
  CHECK(run_command({"podman", "ps", "--all", "--quiet", "--filter", label}).out.empty());
  CHECK(run_command({"podman", "network", "ls", "--quiet", "--filter", label}).out.empty());
}

TEST_CASE("Podman can share one UTS namespace among containers, Docker cannot") {
  const Engine podman = podman_here();
  import_image(podman, {});
  EnvironmentProfile profile = shipped("cross-docker");
  profile.network = profile.ipc = profile.uts = profile.pid = Sharing::shared;
  const auto environment = start_docker_in(podman, profile, test_request("podman-shared"));
  for (const char* file : {"net", "ipc", "uts", "pid"}) {
    INFO(file);
    const std::string first = namespace_in(*environment, 0, file);
    CHECK(first == namespace_in(*environment, 1, file));
    CHECK(first != std::filesystem::read_symlink(std::string("/proc/self/ns/") + file).string());
  }
  environment->stop();
}
