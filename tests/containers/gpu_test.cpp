#include "containers/gpu.hpp"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "core/vocabulary/text.hpp"
#include "support.hpp"

using namespace dynamiccl;
namespace fs = std::filesystem;

namespace {

void make_file(const std::string& path) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream file(path);
}

}  // namespace

TEST_CASE("GPUs are the numbered device files, in order") {
  const TempFolder root;
  for (const char* name : {"nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia"})
    make_file(root.path() + "/dev/" + name);
  const auto gpus = find_gpus(root.path());
  REQUIRE(gpus.size() == 2);
  CHECK(gpus[0].minor == 2);
  CHECK(gpus[1].minor == 10);
  CHECK(find_gpus(root.path() + "/nowhere").empty());
}

TEST_CASE("without toolkit the device files and the driver's libraries are named one by one") {
  const TempFolder root;
  for (const char* name : {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"})
    make_file(root.path() + "/dev/" + name);
  const std::string libraries = "/usr/lib/x86_64-linux-gnu";
  make_file(root.path() + libraries + "/libcuda.so.580.1");
  fs::create_symlink("libcuda.so.580.1", root.path() + libraries + "/libcuda.so.1");
  const auto flags = gpu_flags({{1}}, GpuPassing::devices, EngineKind::docker, root.path());
  CHECK(join(flags, " ") ==
        "--device /dev/nvidiactl --device /dev/nvidia-uvm --device /dev/nvidia1 "
        "--volume " +
            fs::canonical(root.path()).string() + libraries + "/libcuda.so.580.1:" + libraries +
            "/libcuda.so.1:ro");
}

TEST_CASE("the toolkit, CDI and no GPU at all") {
  CHECK(join(gpu_flags({{0}, {3}}, GpuPassing::toolkit, EngineKind::docker), " ") ==
        "--gpus \"device=0,3\"");
  CHECK(join(gpu_flags({{0}, {3}}, GpuPassing::cdi, EngineKind::podman), " ") ==
        "--device nvidia.com/gpu=0 --device nvidia.com/gpu=3");
  CHECK(gpu_flags({}, GpuPassing::devices, EngineKind::docker).empty());
}

TEST_CASE("Podman uses CDI where a specification lies") {
  const TempFolder root;
  const Engine podman{EngineKind::podman, {"podman"}, "", {}, false};
  CHECK(find_gpu_passing(podman, root.path()) == GpuPassing::devices);
  make_file(root.path() + "/etc/cdi/nvidia.yaml");
  CHECK(find_gpu_passing(podman, root.path()) == GpuPassing::cdi);
}
