#include "tuner/agents/arm_history.hpp"

#include <cmath>

#include "core/statistics/statistics.hpp"

namespace dynamiccl {

void ArmHistory::add(std::size_t arm, const Trial& trial) {
  Arm& entry = arms_.at(arm);
  if (!trial.ok || !(trial.time.count() > 0)) {
    entry.failed = true;
    return;
  }
  entry.log_us.push_back(std::log(trial.time.count()));
  ++measured_;
}

std::optional<double> ArmHistory::log_us(std::size_t arm) const {
  const Arm& entry = arms_.at(arm);
  if (entry.log_us.empty()) return std::nullopt;
  return median(entry.log_us);
}

std::optional<std::size_t> ArmHistory::best() const {
  std::optional<std::size_t> best;
  double lowest = 0;
  for (std::size_t a = 0; a < arms_.size(); ++a) {
    if (arms_[a].failed) continue;
    const auto time = log_us(a);
    if (time && (!best || *time < lowest)) {
      best = a;
      lowest = *time;
    }
  }
  return best;
}

}  // namespace dynamiccl
