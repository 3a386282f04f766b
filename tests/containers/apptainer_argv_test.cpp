#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "containers/apptainer.hpp"
#include "core/vocabulary/text.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

EnvironmentProfile hybrid() {
  EnvironmentProfile profile;
  profile.name = "singularity";
  profile.kind = EnvironmentKind::singularity;
  profile.ranks_per_container = 1;
  return profile;
}

ApptainerSite site(bool root) {
  return {
      "/usr/bin/apptainer", "/images/rootfs", "dyn-1-0", "/tmp/runs/dyn-1-0", root, false, {}, {},
      "42.100.abcdef01"};
}

const StartRequest kRequest{"run-7", 2, {"/build"}};

}  // namespace

TEST_CASE("hybrid as root: the same user namespace, no capabilities (B-02)") {
  const EnvironmentPlan plan = plan_apptainer(hybrid(), kRequest, site(true));
  const LaunchShape& shape = plan.shape;
  CHECK(join(shape.rank_prefix, " ") ==
        "/usr/bin/apptainer -q exec --no-privs --bind /tmp/runs/dyn-1-0 --bind /build "
        "/images/rootfs");
  CHECK(shape.launcher_prefix.empty());
  CHECK(shape.hosts.front().slots == 2);
  CHECK(shape.interface == "lo");
  CHECK(plan.commands().empty());
  CHECK(join(plan.rank_command(1, {"worker"}, {{"DYNAMICCL_RANK", "1"}}), " ") ==
        "env DYNAMICCL_ENVIRONMENT=dyn-1-0 DYNAMICCL_OWNER=42.100.abcdef01 DYNAMICCL_RANK=1 " +
            join(shape.rank_prefix, " ") + " worker");
}

TEST_CASE("a user namespace per container, with the launcher inside one of them") {
  EnvironmentProfile profile = hybrid();
  profile.user = Sharing::private_;
  profile.launcher = LauncherPlace::inside;
  profile.ranks_per_container = 0;
  const EnvironmentPlan plan = plan_apptainer(profile, kRequest, site(false));
  const LaunchShape& shape = plan.shape;
  CHECK(join(shape.launcher_prefix, " ") ==
        "/usr/bin/apptainer -q exec --userns --bind /tmp/runs/dyn-1-0 --bind /build "
        "/images/rootfs");
  CHECK(shape.rank_prefix.empty());
  REQUIRE(plan.commands().size() == 1);
  CHECK(join(plan.commands().front(), " ") ==
        "env DYNAMICCL_ENVIRONMENT=dyn-1-0 DYNAMICCL_OWNER=42.100.abcdef01 setsid --fork " +
            join(shape.launcher_prefix, " ") + " sleep infinity");
  CHECK(plan.starts.front().after == std::vector<std::string>{"/tmp/runs/dyn-1-0/enter"});
}

TEST_CASE("root's ranks have no capability in a user namespace of their own either") {
  EnvironmentProfile profile = hybrid();
  profile.user = Sharing::private_;
  CHECK_THAT(join(apptainer_exec_argv(profile, kRequest, site(true)), " "),
             ContainsSubstring("exec --userns --no-privs --bind"));
  CHECK_THAT(enter_script_text(profile, site(true)), ContainsSubstring("--bounding-set=-all"));
}

TEST_CASE("namespaces and GPUs are flags, and nothing ever cleans the environment") {
  EnvironmentProfile profile = hybrid();
  profile.ipc = profile.pid = profile.uts = Sharing::private_;
  profile.gpus = GpuVisibility::all;
  ApptainerSite gpu_site = site(true);
  gpu_site.gpus = true;
  const std::string argv = join(apptainer_exec_argv(profile, kRequest, gpu_site), " ");
  CHECK_THAT(argv, ContainsSubstring("--ipc --pid --uts --hostname dyn-1-0 --nv"));
  // These would drop the launcher's variables: N jobs of one rank each, exit code 0.
  CHECK_THAT(argv, !ContainsSubstring("--cleanenv") && !ContainsSubstring("--contain"));
}

TEST_CASE("one memory folder of the machine is bound where the profile says") {
  EnvironmentProfile profile = hybrid();
  profile.shared_tmpfs = "/run/job";
  CHECK_THAT(join(apptainer_exec_argv(profile, kRequest, site(true)), " "),
             ContainsSubstring(" --bind /dev/shm/dyn-1-0:/run/job /images/rootfs"));
  CHECK(plan_apptainer(profile, kRequest, site(true)).tmpfs == "/dev/shm/dyn-1-0");
}

TEST_CASE("ranks with a UTS namespace each get a host name each") {
  EnvironmentProfile profile = hybrid();
  profile.ipc = profile.pid = profile.uts = Sharing::private_;
  const EnvironmentPlan plan = plan_apptainer(profile, kRequest, site(true));
  CHECK(plan.shape.rank_prefix == std::vector<std::string>{"/tmp/runs/dyn-1-0/own-name"});
  CHECK(plan.starts.front().after == plan.shape.rank_prefix);
  const auto script = std::find_if(plan.scripts.begin(), plan.scripts.end(),
                                   [](const auto& one) { return one.file == "own-name"; });
  REQUIRE(script != plan.scripts.end());
  CHECK_THAT(script->text, ContainsSubstring("exec /usr/bin/apptainer") &&
                               ContainsSubstring("--hostname \"dyn-1-0-$$\"") &&
                               ContainsSubstring("\"$@\""));
}

TEST_CASE("entering the running container joins exactly its namespaces") {
  EnvironmentProfile profile = hybrid();
  CHECK_THAT(enter_script_text(profile, site(true)),
             ContainsSubstring("--mount --root setpriv --no-new-privs --bounding-set=-all") &&
                 !ContainsSubstring("--user"));
  profile.user = profile.ipc = Sharing::private_;
  CHECK_THAT(enter_script_text(profile, site(false)),
             ContainsSubstring("--mount --root --user --preserve-credentials --ipc setpriv"));
}

TEST_CASE("what Apptainer cannot do is named") {
  EnvironmentProfile network = hybrid();
  network.network = Sharing::private_;
  CHECK_THAT(apptainer_unavailable_reason(network).value(), ContainsSubstring("network"));
  EnvironmentProfile shared = hybrid();
  shared.ipc = Sharing::shared;
  CHECK_THAT(apptainer_unavailable_reason(shared).value(), ContainsSubstring("namespaces"));
  EnvironmentProfile capable = hybrid();
  capable.capabilities = {{"SYS_PTRACE", "CMA"}};
  CHECK_THAT(apptainer_unavailable_reason(capable).value(), ContainsSubstring("capabilities"));
}
