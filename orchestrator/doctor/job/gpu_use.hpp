#pragma once

#include <memory>

#include "orchestrator/doctor/job/live_job.hpp"

namespace dynamiccl {

namespace nvml {
class Nvml;
}

/// How much the memory of GPUs is in use, by NVML: a GPU that only waits in a collective's kernel
/// hardly touches it, one that computes does.
class GpuUse {
 public:
  GpuUse();
  ~GpuUse();
  GpuUse(const GpuUse&) = delete;
  GpuUse& operator=(const GpuUse&) = delete;

  /// Fills gpu_memory of the last look at each rank that computes on a GPU; leaves it where NVML is
  /// not here or does not tell. About a millisecond a GPU.
  void read(LiveJob& job) const;

 private:
  std::unique_ptr<nvml::Nvml> nvml_;
};

}  // namespace dynamiccl
