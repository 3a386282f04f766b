#pragma once

#include <memory>
#include <string>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

namespace nvml {
class Nvml;
}

/// Clocks, throttling, power and memory of one GPU while it is measured, by NVML. Each reading
/// takes about a millisecond and reaches the driver: never inside a timed part.
class GpuTelemetry {
 public:
  /// @param pci bus id as CUDA writes it ("0000:4b:00.0"); "" or a machine without NVML gives a
  ///            telemetry that knows nothing and says why
  explicit GpuTelemetry(const std::string& pci);
  ~GpuTelemetry();
  GpuTelemetry(const GpuTelemetry&) = delete;
  GpuTelemetry& operator=(const GpuTelemetry&) = delete;

  /// {"sm_mhz", "memory_mhz", "temperature_c", "power_w", "memory_used_bytes", "slowed_by" (names
  /// of the reasons for which clocks are held back now), and counters since the driver started:
  /// "energy_mj", "power_capped_ns", "thermally_capped_ns"}; what NVML refuses is null with the
  /// reason. nullopt-like: {"unknown": reason} where there is no GPU to ask.
  [[nodiscard]] nlohmann::json read() const;

 private:
  std::unique_ptr<nvml::Nvml> nvml_;
  void* device_ = nullptr;
  std::string reason_;
};

/// What happened between two readings: the later one's state, "mean_power_w" over `seconds`, and
/// "power_capped_share", "thermally_capped_share" of the time.
nlohmann::json gpu_between(const nlohmann::json& before, const nlohmann::json& after,
                           double seconds);

/// Names of the set bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h).
nlohmann::json clock_reasons(unsigned long long bits);

}  // namespace dynamiccl
