#include <array>
#include <chrono>
#include <utility>

#include "containers/held_command.hpp"
#include "containers/paths.hpp"
#include "real_support.hpp"
#include "support.hpp"

using namespace dynamiccl;

namespace {

struct NamespaceRow {
  const char* file;
  Sharing EnvironmentProfile::*sharing;
};
constexpr std::array kNamespaces{
    NamespaceRow{"net", &EnvironmentProfile::network},
    NamespaceRow{"ipc", &EnvironmentProfile::ipc}, NamespaceRow{"uts", &EnvironmentProfile::uts},
    NamespaceRow{"pid", &EnvironmentProfile::pid}, NamespaceRow{"user", &EnvironmentProfile::user}};

std::string host_namespace(const char* file) {
  return std::filesystem::read_symlink(std::string("/proc/self/ns/") + file).string() + "\n";
}

/// Both ranks' namespace, while both hold it: a number of one that has ended may be reused.
std::pair<std::string, std::string> namespaces_of_two(const Environment& environment,
                                                      const std::string& path) {
  // A container's outlive what is asked in them, whether or not its input stays open.
  const auto ask = [&](int rank) {
    return HeldCommand(
        environment.wrap_rank(rank, {"sh", "-c", "readlink \"$0\"; cat >/dev/null", path}, {}),
        "/dev/null");
  };
  HeldCommand first = ask(0);
  HeldCommand second = ask(1);
  const auto answer = [](HeldCommand& asked) {
    return asked.read_line("", std::chrono::minutes(5), nullptr).value_or("no answer") + "\n";
  };
  const std::string of_first = answer(first);
  return {of_first, answer(second)};
}

/// What two ranks see is what the profile says, namespace by namespace.
void check_namespaces(const EnvironmentProfile& profile, const Environment& environment) {
  for (const NamespaceRow& row : kNamespaces) {
    const std::string path = std::string("/proc/self/ns/") + row.file;
    const auto [first, second] = namespaces_of_two(environment, path);
    INFO(profile.name << " " << row.file);
    const Sharing sharing = profile.*row.sharing;
    CHECK((first == host_namespace(row.file)) == (sharing == Sharing::host));
    const bool one_container = profile.ranks_per_container == 0;
    CHECK((first == second) == (sharing != Sharing::private_ || one_container));
  }
}

std::string shm_kib(const Environment& environment, int rank) {
  return output_in(environment, rank,
                   {"sh", "-c", "df -k --output=size /dev/shm | tail -n 1 | tr -d ' '"});
}

}  // namespace

TEST_CASE("ranks see exactly the namespaces that the profile promises (B-01, B-02, B-03, B-04)") {
  for (const char* name :
       {"bare-metal", "singularity", "singularity-inside", "singularity-userns",
        "singularity-userns-inside", "singularity-apart", "singularity-apart-one-host",
        "single-docker", "cross-docker", "cross-docker-folder", "cross-docker-one-host",
        "cross-docker-host-network", "cross-docker-shared", "cross-docker-shared-ipc",
        "cross-docker-pod"}) {
    DYNAMIC_SECTION(name) {
      const EnvironmentProfile& profile = shipped(name);
      const auto environment = started(profile, test_request("namespaces"));
      check_namespaces(profile, *environment);
      environment->stop();
    }
  }
}

TEST_CASE("sharing one namespace of their own, apart from the host's") {
  EnvironmentProfile profile = shipped("cross-docker");
  profile.network = profile.ipc = profile.pid = Sharing::shared;
  const auto environment = started(profile, test_request("shared"));
  check_namespaces(profile, *environment);
  CHECK(shm_kib(*environment, 0) == shm_kib(*environment, 1));
}

TEST_CASE("containers that share nothing else have one memory folder where the profile says") {
  for (const char* name :
       {"cross-docker-folder", "cross-docker-one-host", "singularity-apart-one-host"}) {
    INFO(name);
    const EnvironmentProfile& profile = shipped(name);
    const auto environment = started(profile, test_request("one-folder"));
    const std::string& folder = profile.shared_tmpfs;
    const std::string outside = environment->plan().tmpfs;
    CHECK(std::filesystem::is_directory(outside));
    output_in(*environment, 0, {"sh", "-c", "echo from-rank-0 > " + folder + "/nccl-abcdef"});
    CHECK(output_in(*environment, 1, {"cat", folder + "/nccl-abcdef"}) == "from-rank-0");
    CHECK(output_in(*environment, 1, {"stat", "--file-system", "--format=%T", folder}) == "tmpfs");
    CHECK(output_in(*environment, 0, {"hostname"}) != output_in(*environment, 1, {"hostname"}));
    environment->stop();
    CHECK_FALSE(std::filesystem::exists(outside));
  }
}

TEST_CASE("/dev/shm has the profile's size, else the engine's 64 MiB") {
  const auto sized = started(shipped("single-docker"), test_request("shm"));
  CHECK(shm_kib(*sized, 0) == "1048576");
  sized->stop();
  const auto standard = started(shipped("single-docker-default-shm"), test_request("shm"));
  CHECK(shm_kib(*standard, 0) == "65536");
  standard->stop();
  const auto small = started(shipped("cross-docker-small-shm"), test_request("shm"));
  CHECK(shm_kib(*small, 1) == "1024");
}

TEST_CASE("CMA is allowed where the profile gives SYS_PTRACE, and in Apptainer") {
  const std::string probe = std::string(DYNAMICCL_BINARY_DIR) + "/tests/containers_cma_probe";
  for (const char* name : {"single-docker", "cross-docker", "singularity", "singularity-inside"}) {
    INFO(name);
    const auto environment = started(shipped(name), test_request("cma"));
    CHECK(output_in(*environment, 0, {probe}) == "allowed");
    environment->stop();
  }
  const auto without = started(shipped("single-docker-no-cma"), test_request("cma"));
  const std::string version = without->provenance().at("engine_version");
  // Newer engines let every process of a container read its siblings.
  if (version.rfind("docker 20.", 0) == 0) CHECK(output_in(*without, 0, {probe}) == "refused");
}

TEST_CASE("what is bound is there under the same path, and the environment reaches the rank") {
  for (const char* name : {"bare-metal", "singularity", "singularity-inside", "single-docker"}) {
    INFO(name);
    const auto environment = started(shipped(name), test_request("binds"));
    const CommandResult result = run_command(
        environment->wrap_rank(1,
                               {"sh", "-c", "test -x \"$0\" && echo \"$DYN_WORD\"",
                                std::string(DYNAMICCL_BINARY_DIR) + "/tests/containers_cma_probe"},
                               {{"DYN_WORD", "two words"}}));
    CHECK(result.out == "two words\n");
    CHECK(result.exit_code == 0);
    environment->stop();
  }
}

TEST_CASE("provenance names engine, version, image content and every command, and no secret") {
  const ScopedVariable secret("DYN_SECRET_TOKEN", "hunter2");
  for (const char* name : {"singularity", "cross-docker"}) {
    INFO(name);
    const auto environment = started(shipped(name), test_request("provenance"));
    const auto provenance = environment->provenance();
    CHECK_FALSE(provenance.at("engine_version").get<std::string>().empty());
    CHECK(provenance.at("image_content_sha256").get<std::string>().size() == 64);
    CHECK(provenance.at("image_source") == "package mirror");
    CHECK(provenance.dump().find("hunter2") == std::string::npos);
    environment->stop();
  }
}
