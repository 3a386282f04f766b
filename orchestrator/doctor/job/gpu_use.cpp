#include "orchestrator/doctor/job/gpu_use.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "profiles/detect/probes/nvml_library.hpp"

namespace dynamiccl {
namespace {

// Of NVML's C interface (nvml.h).
struct GpuUtilization {
  unsigned gpu, memory;  ///< percent
};
struct ComputeProcess {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned instance, compute_instance;
};
constexpr unsigned kMostProcesses = 256;

}  // namespace

GpuUse::GpuUse() {
  std::string reason;
  nvml_ = nvml::Nvml::open(reason);
}

GpuUse::~GpuUse() = default;

void GpuUse::read(LiveJob& job) const {
  unsigned devices = 0;
  if (!nvml_ || !nvml_->get("nvmlDeviceGetCount_v2", &devices)) return;
  std::map<pid_t, double> in_use;
  for (unsigned i = 0; i < devices; ++i) {
    nvml::Device device = nullptr;
    GpuUtilization use{};
    std::array<ComputeProcess, kMostProcesses> processes;
    unsigned count = kMostProcesses;
    if (!nvml_->get("nvmlDeviceGetHandleByIndex_v2", i, &device) ||
        !nvml_->get("nvmlDeviceGetUtilizationRates", device, &use) ||
        !nvml_->get("nvmlDeviceGetComputeRunningProcesses_v3", device, &count, processes.data()))
      continue;
    for (unsigned one = 0; one < std::min(count, kMostProcesses); ++one) {
      auto& most = in_use[static_cast<pid_t>(processes[one].pid)];
      most = std::max(most, use.memory / 100.0);
    }
  }
  for (auto& rank : job.ranks)
    if (const auto found = in_use.find(rank.pid); found != in_use.end() && !rank.looks.empty())
      rank.looks.back().gpu_memory = found->second;
}

}  // namespace dynamiccl
