#include <chrono>
#include <set>
#include <thread>

#include "real_support.hpp"

using namespace dynamiccl;

namespace {

std::string host_list(const LaunchShape& shape) {
  std::vector<std::string> hosts;
  for (const HostSlot& host : shape.hosts)
    hosts.push_back(host.name + ":" + std::to_string(host.slots));
  return join(hosts, ",");
}

std::set<std::string> lines_of(const std::string& text) {
  std::set<std::string> lines;
  for (const std::string& line : split(text, '\n'))
    if (!line.empty()) lines.insert(line);
  return lines;
}

std::set<std::string> host_names(const LaunchShape& shape) {
  std::set<std::string> names;
  for (const HostSlot& host : shape.hosts) names.insert(host.name);
  return names;
}

bool runs_in(const Environment& environment, const std::string& marker) {
  const CommandResult result = run_command(environment.wrap_rank(
      0, {"sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"}, {}));
  return result.out.find(marker) != std::string::npos;
}

}  // namespace

TEST_CASE("Open MPI's launcher reaches every container through the agent (B-04)") {
  const auto environment = started(shipped("cross-docker"), test_request("openmpi"));
  const LaunchShape shape = environment->shape();
  const CommandResult result = run_command(
      {"mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "--mca", "plm_rsh_agent",
       shape.launch_agent, "--mca", "oob_tcp_if_include", shape.subnet, "--mca",
       "btl_tcp_if_include", shape.subnet, "--host", host_list(shape), "-n", "2", "hostname"});
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(lines_of(result.out) == host_names(shape));
}

TEST_CASE("MPICH's launcher reaches every container through the agent (B-04)") {
  const auto environment = started(shipped("cross-docker"), test_request("mpich"));
  const LaunchShape shape = environment->shape();
  const CommandResult result = run_command(
      {"mpiexec.mpich", "-launcher", "ssh", "-launcher-exec", shape.launch_agent, "-localhost",
       shape.host_address, "-hosts", host_list(shape), "-wdir", "/", "-n", "2", "hostname"});
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(lines_of(result.out) == host_names(shape));
}

TEST_CASE("the image holds every library the workers need") {
  std::vector<std::string> workers;
  for (const auto& entry : std::filesystem::directory_iterator(DYNAMICCL_BINARY_DIR))
    if (entry.is_regular_file() &&
        entry.path().filename().string().rfind("dynamiccl-worker", 0) == 0)
      workers.push_back(entry.path().string());
  if (workers.empty()) SKIP("no worker is built");
  for (const char* name : {"singularity", "single-docker"}) {
    const auto environment = started(shipped(name), test_request("libraries"));
    for (const std::string& worker : workers) {
      const std::string libraries = output_in(*environment, 0, {"ldd", worker});
      INFO(name << " " << worker << "\n" << libraries);
      CHECK(libraries.find("not found") == std::string::npos);
    }
    environment->stop();
  }
}

TEST_CASE("the launcher inside a container starts all ranks there (B-02, B-03)") {
  for (const char* name : {"single-docker", "singularity-inside", "singularity-userns-inside"}) {
    INFO(name);
    const auto environment = started(shipped(name), test_request("inside"));
    for (const char* launcher : {"mpirun.openmpi", "mpiexec.mpich"}) {
      auto argv = environment->shape().launcher_prefix;
      argv.insert(argv.end(),
                  {"env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", launcher,
                   "-n", "2", "sh", "-c", "echo rank"});
      const CommandResult result = run_command(argv);
      INFO(launcher << " " << result.err);
      CHECK(result.out == "rank\nrank\n");
    }
    environment->stop();
  }
}

TEST_CASE("ending the ranks ends what a killed client leaves inside, and the container stays") {
  for (const char* name : {"single-docker", "cross-docker-shared", "singularity-inside"}) {
    INFO(name);
    const auto environment = started(shipped(name), test_request("kill"));
    CommandOptions brief;
    brief.timeout = std::chrono::milliseconds(700);
    // The timeout kills the client; the engine leaves its process running. A busy machine takes
    // longer to start it.
    for (; !runs_in(*environment, "sleep 4711") && brief.timeout < std::chrono::minutes(2);
         brief.timeout *= 2)
      CHECK(
          run_command(environment->wrap_rank(0, {"setsid", "sleep", "4711"}, {}), brief).timed_out);
    REQUIRE(runs_in(*environment, "sleep 4711"));
    // A busy machine may need longer than one call waits.
    for (int call = 0; call < 100 && runs_in(*environment, "sleep 4711"); ++call)
      environment->end_ranks();
    CHECK_FALSE(runs_in(*environment, "sleep 4711"));
    CHECK(output_in(*environment, 0, {"echo", "still here"}) == "still here");
    environment->stop();
  }
}

TEST_CASE("bare metal: a rank in a session of its own is found and ended") {
  const auto environment = started(shipped("bare-metal"), test_request("kill-bare"));
  CommandOptions marked;
  marked.environment = environment->shape().launcher_environment;
  marked.output_file = "/dev/null";
  run_command({"setsid", "--fork", "sleep", "4712"}, marked);
  // setsid --fork returns before its child has become the sleep; a killed process takes a moment.
  const auto soon = [&](bool wanted) {
    for (int i = 0; i < 3000 && runs_in(*environment, "sleep 4712") != wanted; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return runs_in(*environment, "sleep 4712");
  };
  CHECK(soon(true));
  environment->end_ranks();
  CHECK_FALSE(soon(false));
}

TEST_CASE("a shaped link passes no faster than its cap, in both directions") {
  EnvironmentProfile profile = shipped("cross-docker-100mbit");
  const auto environment = started(profile, test_request("rate"));
  const LaunchShape shape = environment->shape();
  const auto container = shape.hosts[0].name;
  const auto engine = find_engine().engine;
  REQUIRE(engine);
  const CommandResult inside =
      run_command(engine_argv(*engine, {"exec", container, "tc", "qdisc", "show"}));
  CHECK(inside.out.find("tbf") != std::string::npos);
  CHECK(inside.out.find("rate 100Mbit") != std::string::npos);
  const CommandResult host = run_command({"tc", "qdisc", "show"});
  CHECK(host.out.find("rate 100Mbit") != std::string::npos);
}

TEST_CASE("the plan's commands and shape are those that are run") {
  const EnvironmentProfile& profile = shipped("cross-docker");
  if (const auto reason = unavailable_reason(profile)) SKIP(*reason);
  const StartRequest request = test_request("plan");
  const EnvironmentPlan planned = plan_environment(profile, request);
  const auto commands = planned.commands();
  const auto environment = started(profile, request);
  CHECK(environment->shape().launch_agent == planned.shape.launch_agent);
  CHECK(environment->shape().subnet == planned.shape.subnet);
  CHECK(environment->plan().kill_command == planned.kill_command);
  const auto containers = environment->provenance().at("containers");
  REQUIRE(commands.size() == containers.size() + 1);
  for (std::size_t i = 0; i < containers.size(); ++i)
    CHECK(containers[i].at("argv") == command_line(commands[i + 1]));
}
