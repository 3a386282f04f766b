#include "orchestrator/launch/launcher.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/launch.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

LaunchRequest request_for(Backend backend) {
  LaunchRequest request;
  request.backend = backend;
  request.ranks = 2;
  request.cores = 2;
  request.as_root = true;
  request.shape.hosts = {{"localhost", "", 2}};
  request.worker = {"/b/worker", "/r/run.json"};
  request.wrap_rank = [](int rank, const std::vector<std::string>& command, const auto& env) {
    std::vector<std::string> argv{"enter", std::to_string(rank)};
    for (const auto& [name, value] : env) argv.push_back(name + "=" + value);
    argv.insert(argv.end(), command.begin(), command.end());
    return argv;
  };
  return request;
}

LaunchShape two_containers() {
  LaunchShape shape;
  shape.hosts = {{"w0", "172.30.0.10", 1}, {"w1", "172.30.0.11", 1}};
  shape.launch_agent = "/run/agent";
  shape.subnet = "172.30.0.0/24";
  shape.host_address = "172.30.0.1";
  shape.interface = "eth0";
  shape.launcher_environment = {{"DOCKER_HOST", "unix:///d.sock"}};
  return shape;
}

std::string line(const LaunchRequest& request, std::size_t command = 0) {
  return join(launcher_for(request.backend).build(request).at(command).argv, " ");
}

const EnvironmentProfile& profile(const std::string& name) {
  static const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  return profiles.at(name);
}

}  // namespace

TEST_CASE("Open MPI on the machine itself keeps TCP off the container bridges") {
  CHECK(line(request_for(Backend::openmpi)) ==
        "mpirun.openmpi --allow-run-as-root --bind-to none --mca btl_tcp_if_include lo --mca "
        "plm_rsh_agent /bin/true -n 2 /b/worker /r/run.json");
}

TEST_CASE("what ranks inherit is named to Open MPI without its value") {
  auto request = request_for(Backend::openmpi);
  request.inherited = {"DYNAMICCL_RECORDS_TOKEN"};
  CHECK(line(request).find(" -x DYNAMICCL_RECORDS_TOKEN -n 2 ") != std::string::npos);
}

TEST_CASE("ranks that take turns on a GPU are hosts of their own to NCCL") {
  auto request = request_for(Backend::nccl);
  CHECK(line(request, 1).find("NCCL_HOSTID") == std::string::npos);
  request.environment["DYNAMICCL_SHARED_GPUS"] = "1";
  CHECK(line(request, 0).find("NCCL_HOSTID=rank-0 ") != std::string::npos);
  CHECK(line(request, 1).find("NCCL_HOSTID=rank-1 ") != std::string::npos);
  CHECK(line(request, 1).find("NCCL_SOCKET_IFNAME") == std::string::npos);
  request.shape.interface = "lo";
  CHECK(line(request, 1).find("NCCL_SOCKET_IFNAME=lo ") != std::string::npos);
  request.environment["NCCL_SOCKET_IFNAME"] = "eth3";
  CHECK(line(request, 1).find("NCCL_SOCKET_IFNAME=eth3 ") != std::string::npos);
}

TEST_CASE("an ordinary user gets no --allow-run-as-root, more ranks than cores oversubscribe") {
  auto request = request_for(Backend::openmpi);
  request.as_root = false;
  request.ranks = 4;
  CHECK(line(request) ==
        "mpirun.openmpi --bind-to none --oversubscribe --mca btl_tcp_if_include lo --mca "
        "mpi_yield_when_idle 1 --mca plm_rsh_agent /bin/true -n 4 /b/worker /r/run.json");
}

TEST_CASE("Open MPI across containers goes through the agent, unbound, on their network") {
  auto request = request_for(Backend::openmpi);
  request.shape = two_containers();
  apply_settings(request, profile("cross-docker"), {});
  CHECK(
      line(request) ==
      "mpirun.openmpi --allow-run-as-root --bind-to none --mca plm rsh --mca plm_rsh_agent "
      "/run/agent --mca plm_rsh_no_tree_spawn 1 --host w0:1,w1:1 --map-by slot:OVERSUBSCRIBE --mca "
      "btl_tcp_if_include 172.30.0.0/24 --mca oob_tcp_if_include 172.30.0.0/24 -n 2 /b/worker "
      "/r/run.json");
  CHECK(launcher_for(Backend::openmpi).build(request)[0].environment ==
        std::map<std::string, std::string>{{"DOCKER_HOST", "unix:///d.sock"}});
}

TEST_CASE("MPICH across containers names the host's address and a folder that exists inside") {
  auto request = request_for(Backend::mpich);
  request.shape = two_containers();
  apply_settings(request, profile("cross-docker"), {});
  CHECK(line(request) ==
        "mpirun.mpich -launcher ssh -launcher-exec /run/agent -hosts w0:1,w1:1 -localhost "
        "172.30.0.1 -wdir / -n 2 /b/worker /r/run.json");
}

TEST_CASE("launchers are told to deal ranks to the hosts in turn, unless a setting says how") {
  auto request = request_for(Backend::mpich);
  request.shape = two_containers();
  request.shape.dealt = true;
  CHECK_THAT(line(request), ContainsSubstring("-hosts w0:1,w1:1 -ppn 1 "));
  request.backend = Backend::openmpi;
  CHECK_THAT(line(request), ContainsSubstring("--mca rmaps_base_ranking_policy node "));
  request.mca["rmaps_base_ranking_policy"] = "slot";
  CHECK_THAT(line(request), ContainsSubstring("--mca rmaps_base_ranking_policy slot "));
}

TEST_CASE("MPICH's launcher is given no hosts of unequal room to deal ranks to") {
  auto request = request_for(Backend::mpich);
  request.shape = two_containers();
  request.shape.dealt = true;
  request.ranks = 3;
  request.shape.hosts[0].slots = 2;
  CHECK_THAT(line(request), ContainsSubstring("-hosts w0:2,w1:1 -ppn 1 "));
  request.ranks = 4;
  request.shape.hosts[0].slots = 3;
  CHECK_THROWS_WITH(line(request),
                    ContainsSubstring("w0 would get 2 of 4 ranks and is to have 3; give each host "
                                      "the same number of slots, or leave out dealt"));
  request.shape.dealt = false;
  CHECK_THAT(line(request), ContainsSubstring("-hosts w0:3,w1:1 -localhost "));
}

TEST_CASE("a setting names the folders that ranks and programs lie in") {
  auto request = request_for(Backend::nccl);
  request.shape = two_containers();
  request.shape.interface = "eth0";
  request.program_folder = "/b";
  apply_settings(request, profile("cross-docker-one-host"), {});
  CHECK(request.environment.at("LD_PRELOAD") == "/b/libdynamiccl-onehost.so");
  CHECK(request.environment.at("DYNAMICCL_SHARED_FOLDER") == "/run/job");
  // No other library's ranks load it.
  auto other = request_for(Backend::gloo);
  other.shape = request.shape;
  apply_settings(other, profile("cross-docker-one-host"), {});
  CHECK_FALSE(other.environment.contains("LD_PRELOAD"));
}

TEST_CASE("a launcher inside its container stands behind the prefix") {
  auto request = request_for(Backend::openmpi);
  request.shape.launcher_prefix = {"docker", "exec", "-i", "c0"};
  CHECK(line(request) ==
        "docker exec -i c0 mpirun.openmpi --allow-run-as-root --bind-to none --mca "
        "btl_tcp_if_include lo --mca plm_rsh_agent /bin/true -n 2 /b/worker /r/run.json");
  request.backend = Backend::mpich;
  CHECK(line(request) == "docker exec -i c0 mpirun.mpich -n 2 /b/worker /r/run.json");
}

TEST_CASE("the hybrid model wraps every rank") {
  auto request = request_for(Backend::mpich);
  request.shape.rank_prefix = {"apptainer", "exec", "i.sif"};
  CHECK(line(request) == "mpirun.mpich -n 2 apptainer exec i.sif /b/worker /r/run.json");
  request.backend = Backend::openmpi;
  CHECK(line(request) ==
        "mpirun.openmpi --allow-run-as-root --bind-to none --mca btl_tcp_if_include lo --mca "
        "plm_rsh_agent /bin/true -n 2 apptainer exec i.sif /b/worker /r/run.json");
}

TEST_CASE("an agent that somebody names stays, and more ranks than cores map over the containers") {
  auto request = request_for(Backend::openmpi);
  apply_settings(request, profile("bare-metal"), {{"mca.plm_rsh_agent", "ssh"}});
  CHECK(line(request).find("plm_rsh_agent ssh") != std::string::npos);
  CHECK(line(request).find("/bin/true") == std::string::npos);
  request = request_for(Backend::openmpi);
  request.shape = two_containers();
  request.cores = 1;
  CHECK(line(request).find("--oversubscribe") == std::string::npos);
  CHECK(line(request).find("--map-by slot:OVERSUBSCRIBE --mca mpi_yield_when_idle 1") !=
        std::string::npos);
}

TEST_CASE("ranks without a launcher are started one by one and told their rank") {
  const auto request = request_for(Backend::gloo);
  CHECK(line(request, 0) == "enter 0 DYNAMICCL_RANK=0 /b/worker /r/run.json");
  CHECK(line(request, 1) == "enter 1 DYNAMICCL_RANK=1 /b/worker /r/run.json");
}

TEST_CASE("knobs win over the profile's settings and reach ranks or launcher by their scope") {
  auto request = request_for(Backend::openmpi);
  request.shape = two_containers();
  apply_settings(request, profile("cross-docker"),
                 {{"mca.btl_tcp_if_include", "eth1"}, {"env.A", "1"}});
  CHECK(
      line(request).ends_with("--mca btl_tcp_if_include eth1 --mca oob_tcp_if_include "
                              "172.30.0.0/24 -x A=1 -n 2 /b/worker /r/run.json"));
  auto mpich = request_for(Backend::mpich);
  apply_settings(mpich, profile("bare-metal"), {{"env.UCX_TLS", "tcp"}});
  CHECK(line(mpich) == "mpirun.mpich -genv UCX_TLS tcp -n 2 /b/worker /r/run.json");
}

TEST_CASE("the allocator's settings reach the ranks of every CPU backend as GLIBC_TUNABLES") {
  const std::string huge = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1";
  for (const Backend backend : {Backend::openmpi, Backend::gloo}) {
    auto request = request_for(backend);
    apply_settings(request, profile("bare-metal"), {{"malloc.huge_pages", "1"}});
    INFO(line(request));
    CHECK(line(request).find(huge + " ") != std::string::npos);
  }
  auto mpich = request_for(Backend::mpich);
  apply_settings(mpich, profile("bare-metal"), {{"malloc.huge_pages", "1"}});
  CHECK(line(mpich).find("-genv GLIBC_TUNABLES glibc.malloc.hugetlb=1 -n 2") != std::string::npos);
}

TEST_CASE("GLIBC_TUNABLES that somebody set is joined with, in the shell, profile or knobs") {
  const std::string variable = "GLIBC_TUNABLES";
  auto request = request_for(Backend::gloo);
  request.inherited_tunables = "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=2";
  auto environment = profile("bare-metal");
  apply_settings(request, environment, {{"env.A", "1"}});
  CHECK_FALSE(request.environment.contains(variable));
  apply_settings(request, environment, {{"malloc.huge_pages", "1"}});
  CHECK(request.environment[variable] == "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1");
  // False is written out where the shell says otherwise.
  request.environment.clear();
  request.inherited_tunables = "glibc.malloc.hugetlb=1";
  apply_settings(request, environment, {{"malloc.huge_pages", "0"}});
  REQUIRE(request.environment.contains(variable));
  CHECK(request.environment[variable].empty());
  // The knobs win over the profile.
  request.environment.clear();
  environment.environment[variable] = "glibc.malloc.arena_max=3";
  environment.backend_settings[Backend::gloo] = {
      {{SettingScope::malloc, "keep", "true"}, "r"},
      {{SettingScope::malloc, "huge_pages", "true"}, "r"}};
  apply_settings(request, environment, {{"malloc.keep", "0"}});
  CHECK(request.environment[variable] == "glibc.malloc.arena_max=3:glibc.malloc.hugetlb=1");
}

TEST_CASE("a secret among the knobs reaches the ranks and not the record") {
  for (const Backend backend : {Backend::openmpi, Backend::mpich, Backend::gloo}) {
    auto request = request_for(backend);
    apply_settings(request, profile("bare-metal"), {{"env.HUB_TOKEN", "hush"}});
    const auto commands = launcher_for(backend).build(request);
    CHECK(line(request).find("hush") != std::string::npos);
    const std::string recorded = join(recorded_argv(commands), " ");
    INFO(recorded);
    CHECK(recorded.find("hush") == std::string::npos);
    CHECK(recorded.find("<redacted>") != std::string::npos);
    CHECK(recorded.find("/b/worker") != std::string::npos);
  }
}

TEST_CASE("a profile may bind Open MPI's ranks itself") {
  auto request = request_for(Backend::openmpi);
  request.mca["hwloc_base_binding_policy"] = "core";
  CHECK(line(request).starts_with(
      "mpirun.openmpi --allow-run-as-root --bind-to core --mca btl_tcp_if_include lo"));
}

TEST_CASE("a setting that needs a subnet fails where there is none, and says so") {
  auto request = request_for(Backend::openmpi);
  try {
    apply_settings(request, profile("cross-docker"), {});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "profile cross-docker: mca.btl_tcp_if_include = \"{subnet}\" needs {subnet}, which this "
          "environment has not (it uses the host's network); write the value itself");
  }
}

TEST_CASE("every backend has a launcher and a worker") {
  for (const auto& entry : NameTable<Backend>::entries) {
    CHECK_FALSE(launcher_for(entry.value).name.empty());
    CHECK(worker_program(entry.value).starts_with("dynamiccl-worker"));
  }
}

TEST_CASE("Slurm's steps start each library by the process management it was built for") {
  const auto started = [](Backend backend, bool daemons) {
    auto request = request_for(backend);
    request.shape.hosts = {{"n1", "", 1}, {"n2", "", 1}};
    request.shape.step_prefix = {"srun", "--nodes=2"};
    request.shape.slurm_daemons = daemons;
    request.mca["coll"] = "tuned";
    request.environment["A"] = "1";
    return join(launcher_for(backend, request.shape).build(request).at(0).argv, " ");
  };
  CHECK(started(Backend::openmpi, false) ==
        "srun --nodes=2 --mpi=pmix env A=1 OMPI_MCA_coll=tuned "
        "OMPI_MCA_hwloc_base_binding_policy=none /b/worker /r/run.json");
  CHECK(started(Backend::mpich, false) ==
        "srun --nodes=2 --mpi=pmi2 env A=1 /b/worker /r/run.json");
  // Whoever has no launcher of its own takes its rank from Slurm, in either case.
  for (const bool daemons : {false, true})
    CHECK(started(Backend::gloo, daemons).starts_with("srun --nodes=2 --mpi=none env A=1 sh -c "));
  CHECK(started(Backend::openmpi, true).find("--mca plm slurm --host n1:1,n2:1") !=
        std::string::npos);
  CHECK(started(Backend::mpich, true).find("-launcher slurm -hosts n1:1,n2:1") !=
        std::string::npos);
}

TEST_CASE("a part that is not there is named with its package, or with how it is built") {
  std::string folder = std::filesystem::temp_directory_path() / "absent-part-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  const std::string worker = folder + "/dynamiccl-worker";
  const std::string installed = why_part_is_absent(worker, "configure it");
  CHECK(installed.starts_with(worker + " is not installed: "));
  CHECK(installed.find("apt-get install ./dynamiccl-worker-gloo_*.deb") != std::string::npos);
  std::ofstream(folder + "/dynamiccl.source-tree") << "/somewhere\n";
  CHECK(why_part_is_absent(worker, "configure it") == worker + " is not built: configure it");
  std::filesystem::remove_all(folder);
}
