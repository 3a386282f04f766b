#pragma once

#include <string>
#include <vector>

#include "containers/engine.hpp"

namespace dynamiccl {

/// One NVIDIA GPU as the kernel driver shows it.
struct GpuDevice {
  int minor = 0;  ///< N of /dev/nvidiaN
};

/// How GPUs get into a container.
enum class GpuPassing {
  toolkit,  ///< NVIDIA container toolkit: --gpus
  cdi,      ///< container device interface: --device nvidia.com/gpu=N
  devices   ///< device files and the driver's libraries, named one by one
};

/// GPUs of this machine by their device files under `root`, in order of their numbers.
std::vector<GpuDevice> find_gpus(const std::string& root = "");

/// The toolkit where the engine knows it, else CDI where a specification lies under `root`, else
/// devices.
GpuPassing find_gpu_passing(const Engine& engine, const std::string& root = "");

/// Flags for `run`; none for no GPUs.
std::vector<std::string> gpu_flags(const std::vector<GpuDevice>& gpus, GpuPassing passing,
                                   EngineKind engine, const std::string& root = "");

}  // namespace dynamiccl
