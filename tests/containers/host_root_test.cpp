#include "containers/host_root.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>

#include "containers/apptainer.hpp"
#include "containers/docker_plan.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

namespace fs = std::filesystem;

struct Scratch {
  fs::path path = fs::temp_directory_path() / "dynamiccl-host-root-test";
  Scratch() { fs::remove_all(path); }
  ~Scratch() { fs::remove_all(path); }
};

}  // namespace

TEST_CASE("the image source is one of two words, anything else is refused") {
  setenv("DYNAMICCL_IMAGE_SOURCE", "host-root", 1);
  CHECK(host_root_wanted());
  setenv("DYNAMICCL_IMAGE_SOURCE", "packages", 1);
  CHECK_FALSE(host_root_wanted());
  setenv("DYNAMICCL_IMAGE_SOURCE", "hostroot", 1);
  CHECK_THROWS_AS(host_root_wanted(), Error);
  unsetenv("DYNAMICCL_IMAGE_SOURCE");
  CHECK_FALSE(host_root_wanted());
}

TEST_CASE("driver folders are bound where they are and no other bind covers them") {
  const Scratch scratch;
  for (const char* folder : {"usr/local/nvidia/lib64", "etc", "var/lib/nvidia"})
    fs::create_directories(scratch.path / folder);
  CHECK(host_root_binds(scratch.path.string()) ==
        std::vector<std::string>{"/usr", "/etc", "/var/lib/nvidia"});
}

TEST_CASE("a container of the machine's own files gets them read-only, with their library path") {
  DockerSite site;
  site.name = "dyn";
  site.run_folder = "/tmp/dyn";
  site.subnet_prefix = "172.30.9";
  site.image = kHostRootImage;
  site.host_folders = {"/usr", "/etc"};
  site.library_path = "/usr/local/nvidia/lib64";
  EnvironmentProfile profile;
  profile.kind = EnvironmentKind::cross_docker;
  profile.ranks_per_container = 1;
  profile.network = Sharing::private_;
  const Engine engine{EngineKind::docker, {"docker"}, "", {}, false};
  const auto plan = plan_docker(engine, profile, {"run", 2, {}}, site);
  const auto argv = join(plan.containers.front().run_argv, " ");
  CHECK_THAT(argv, ContainsSubstring("--volume /usr:/usr:ro --volume /etc:/etc:ro"));
  CHECK_THAT(argv, ContainsSubstring("--env LD_LIBRARY_PATH=/usr/local/nvidia/lib64"));

  ApptainerSite apptainer{"apptainer", "/images/host-root", "dyn", "/tmp/dyn", true, true};
  apptainer.host_folders = {"/usr"};
  profile.kind = EnvironmentKind::singularity;
  profile.gpus = GpuVisibility::all;
  const auto exec = join(apptainer_exec_argv(profile, {"run", 2, {}}, apptainer), " ");
  CHECK_THAT(exec, ContainsSubstring("--bind /usr:/usr:ro"));
  // The driver's libraries have come with the folders: --nv would look for them a second time.
  CHECK_THAT(exec, !ContainsSubstring("--nv"));
}
