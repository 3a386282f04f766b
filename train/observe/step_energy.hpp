#pragma once

#include <string>
#include <utility>

#include "core/vocabulary/json.hpp"
#include "core/wire/record.hpp"
#include "profiles/detect/gpu_telemetry.hpp"
#include "workers/clock.hpp"
#include "workers/device/device.hpp"

namespace dynamiccl {

/// Energy between readings of a GPU, summed up.
struct EnergyCount {
  double joules = 0;
  double seconds = 0;
  int steps = 0;
  std::string unknown;  ///< why there is no reading

  /// @param before and after as GpuTelemetry::read()
  void add(const nlohmann::json& before, const nlohmann::json& after, double seconds, int steps);
  /// {"joules", "seconds", "steps"}, or {"unknown": reason}; null where nothing was measured.
  [[nodiscard]] nlohmann::json as_json() const;
};

/// What a rank's GPU takes in measured steps, by NVML's counter: of the whole GPU, whoever uses it.
class StepEnergy {
 public:
  /// @param device nullptr: a rank without a GPU has nothing to count
  explicit StepEnergy(const Device* device) : telemetry_(device == nullptr ? "" : device->pci()) {
    has_gpu_ = device != nullptr;
  }
  /// Runs so many steps between two readings, which take about a millisecond.
  template <class F>
  auto over(int steps, F&& run) {
    const nlohmann::json before = has_gpu_ ? telemetry_.read() : nlohmann::json();
    const double start_us = now_us();
    auto result = run();
    const double seconds = (now_us() - start_us) / 1e6;
    if (has_gpu_) count_.add(before, telemetry_.read(), seconds, steps);
    return result;
  }
  void describe(TrainingFigures& figures) const {
    if (auto energy = count_.as_json(); !energy.is_null())
      figures.details["energy"] = std::move(energy);
  }

 private:
  GpuTelemetry telemetry_;
  bool has_gpu_ = false;
  EnergyCount count_;
};

}  // namespace dynamiccl
