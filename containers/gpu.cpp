#include "containers/gpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "containers/command.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

/// What a CUDA program loads from the driver rather than from the toolkit.
constexpr std::array kDriverLibraries{"libcuda.so.1", "libnvidia-ml.so.1",
                                      "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4"};
constexpr std::array kLibraryFolders{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                                     "/usr/lib64", "/usr/local/nvidia/lib64"};

std::vector<std::string> device_flags(const std::vector<GpuDevice>& gpus, const std::string& root) {
  std::vector<std::string> flags;
  std::vector<std::string> devices{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
                                   "/dev/nvidia-modeset"};
  for (const GpuDevice& gpu : gpus) devices.push_back(fmt::format("/dev/nvidia{}", gpu.minor));
  for (const std::string& device : devices)
    if (fs::exists(root + device)) flags.insert(flags.end(), {"--device", device});
  for (const char* library : kDriverLibraries)
    for (const char* folder : kLibraryFolders) {
      const std::string path = fmt::format("{}/{}", folder, library);
      if (!fs::exists(root + path)) continue;
      std::error_code code;
      const fs::path real = fs::canonical(root + path, code);
      flags.insert(flags.end(),
                   {"--volume", fmt::format("{}:{}:ro", code ? path : real.string(), path)});
      break;
    }
  return flags;
}

}  // namespace

std::vector<GpuDevice> find_gpus(const std::string& root) {
  std::vector<GpuDevice> gpus;
  std::error_code code;
  for (fs::directory_iterator at(root + "/dev", code), end; !code && at != end;
       at.increment(code)) {
    const std::string name = at->path().filename().string();
    const std::string number = name.rfind("nvidia", 0) == 0 ? name.substr(6) : "";
    if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) continue;
    gpus.push_back({std::stoi(number)});
  }
  std::sort(gpus.begin(), gpus.end(),
            [](const GpuDevice& a, const GpuDevice& b) { return a.minor < b.minor; });
  return gpus;
}

GpuPassing find_gpu_passing(const Engine& engine, const std::string& root) {
  const bool specified =
      fs::exists(root + "/etc/cdi/nvidia.yaml") || fs::exists(root + "/var/run/cdi/nvidia.yaml");
  if (engine.kind == EngineKind::podman) return specified ? GpuPassing::cdi : GpuPassing::devices;
  return find_program("nvidia-container-runtime-hook").empty() ? GpuPassing::devices
                                                               : GpuPassing::toolkit;
}

std::vector<std::string> gpu_flags(const std::vector<GpuDevice>& gpus, GpuPassing passing,
                                   EngineKind engine, const std::string& root) {
  if (gpus.empty()) return {};
  std::vector<std::string> numbers;
  for (const GpuDevice& gpu : gpus) numbers.push_back(std::to_string(gpu.minor));
  if (passing == GpuPassing::devices) return device_flags(gpus, root);
  if (passing == GpuPassing::toolkit && engine == EngineKind::docker)
    // The quotes are Docker's own: its value is CSV, in which commas separate options.
    return {"--gpus", fmt::format("\"device={}\"", join(numbers, ","))};
  std::vector<std::string> flags;
  for (const std::string& number : numbers)
    flags.insert(flags.end(), {"--device", "nvidia.com/gpu=" + number});
  return flags;
}

}  // namespace dynamiccl
