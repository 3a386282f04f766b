#include "train/observe/step_energy.hpp"

#include "profiles/detect/probes/known.hpp"

namespace dynamiccl {
namespace {

std::string why_unknown(const nlohmann::json& reading) {
  const auto reason = reading.find("unknown");
  if (reason != reading.end() && reason->is_string()) return reason->get<std::string>();
  return "NVML does not tell this GPU's energy";
}

}  // namespace

void EnergyCount::add(const nlohmann::json& before, const nlohmann::json& after, double took_s,
                      int done) {
  constexpr double kJoulePerMillijoule = 1e-3;
  const auto millijoules = grown(before, after, "energy_mj");
  if (!millijoules) {
    unknown = why_unknown(after);
    return;
  }
  joules += *millijoules * kJoulePerMillijoule;
  seconds += took_s;
  steps += done;
}

nlohmann::json EnergyCount::as_json() const {
  if (steps > 0) return {{"joules", joules}, {"seconds", seconds}, {"steps", steps}};
  if (unknown.empty()) return {};
  return {{"unknown", unknown}};
}

}  // namespace dynamiccl
