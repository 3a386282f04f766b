#include "profiles/detect/gpu_telemetry.hpp"

#include <array>
#include <utility>

#include "profiles/detect/probes/known.hpp"
#include "profiles/detect/probes/nvml_library.hpp"

namespace dynamiccl {
namespace {

constexpr int kSmClock = 1;      // NVML_CLOCK_SM
constexpr int kMemoryClock = 2;  // NVML_CLOCK_MEM
constexpr int kGpuSensor = 0;    // NVML_TEMPERATURE_GPU
constexpr int kPowerPolicy = 0;  // NVML_PERF_POLICY_POWER
constexpr int kThermalPolicy = 1;

struct ViolationTime {
  unsigned long long reference_us, violation_ns;
};

}  // namespace

nlohmann::json clock_reasons(unsigned long long bits) {
  constexpr std::array<std::pair<unsigned long long, const char*>, 9> kReasons{
      {{0x1, "idle"},
       {0x2, "application_clocks"},
       {0x4, "software_power_cap"},
       {0x8, "hardware_slowdown"},
       {0x10, "sync_boost"},
       {0x20, "software_thermal"},
       {0x40, "hardware_thermal"},
       {0x80, "hardware_power_brake"},
       {0x100, "display_clocks"}}};
  nlohmann::json names = nlohmann::json::array();
  for (const auto& [bit, name] : kReasons)
    if ((bits & bit) != 0) names.push_back(name);
  return names;
}

GpuTelemetry::GpuTelemetry(const std::string& pci) {
  if (pci.empty()) {
    reason_ = "this rank uses no GPU";
    return;
  }
  nvml_ = nvml::Nvml::open(reason_);
  if (!nvml_) return;
  nvml::Device device = nullptr;
  if (!nvml_->get("nvmlDeviceGetHandleByPciBusId_v2", pci.c_str(), &device))
    reason_ = "NVML knows no GPU at " + pci;
  device_ = device;
}

GpuTelemetry::~GpuTelemetry() = default;

nlohmann::json GpuTelemetry::read() const {
  if (device_ == nullptr) return {{"unknown", clean_text(reason_, 300)}};
  auto* const device = static_cast<nvml::Device>(device_);
  Section section;
  const auto set = [&](const char* key, bool known, auto value) {
    if (known)
      section.set(key, value);
    else
      section.unknown(key, nvml::kRefused);
  };
  unsigned value = 0;
  const auto number = [&](const char* key, const char* function, auto... arguments) {
    const bool known = nvml_->get(function, device, arguments..., &value);
    set(key, known, value);
  };
  number("sm_mhz", "nvmlDeviceGetClockInfo", kSmClock);
  number("memory_mhz", "nvmlDeviceGetClockInfo", kMemoryClock);
  number("temperature_c", "nvmlDeviceGetTemperature", kGpuSensor);
  constexpr double kWattPerMilliwatt = 1e-3;
  const bool power = nvml_->get("nvmlDeviceGetPowerUsage", device, &value);
  set("power_w", power, value * kWattPerMilliwatt);
  nvml::MemoryInfo memory{};
  const bool has_memory = nvml_->get("nvmlDeviceGetMemoryInfo", device, &memory);
  set("memory_used_bytes", has_memory, memory.used);
  unsigned long long wide = 0;
  // Renamed in 2023; either name gives the same bits.
  const bool reasons = nvml_->get("nvmlDeviceGetCurrentClocksEventReasons", device, &wide) ||
                       nvml_->get("nvmlDeviceGetCurrentClocksThrottleReasons", device, &wide);
  set("slowed_by", reasons, clock_reasons(wide));
  const bool energy = nvml_->get("nvmlDeviceGetTotalEnergyConsumption", device, &wide);
  set("energy_mj", energy, wide);
  ViolationTime violation{};
  for (const auto& [key, policy] : {std::pair{"power_capped_ns", kPowerPolicy},
                                    std::pair{"thermally_capped_ns", kThermalPolicy}}) {
    const bool known = nvml_->get("nvmlDeviceGetViolationStatus", device, policy, &violation);
    set(key, known, violation.violation_ns);
  }
  return std::move(section).take();
}

nlohmann::json gpu_between(const nlohmann::json& before, const nlohmann::json& after,
                           double seconds) {
  nlohmann::json between = after;
  const auto share = [&](const char* key, const char* from, double scale) {
    const auto difference = grown(before, after, from);
    between[key] = difference && seconds > 0 ? nlohmann::json(*difference * scale / seconds)
                                             : nlohmann::json(nullptr);
    between.erase(from);
  };
  if (!after.contains("energy_mj")) return between;
  share("mean_power_w", "energy_mj", 1e-3);
  share("power_capped_share", "power_capped_ns", 1e-9);
  share("thermally_capped_share", "thermally_capped_ns", 1e-9);
  return between;
}

}  // namespace dynamiccl
