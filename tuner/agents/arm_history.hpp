#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "tuner/agents/agent.hpp"

namespace dynamiccl {

/// Times seen of one task's arms: what every agent remembers.
class ArmHistory {
 public:
  explicit ArmHistory(std::size_t arms) : arms_(arms) {}
  void add(std::size_t arm, const Trial& trial);
  void clear() { arms_.assign(arms_.size(), {}); }
  [[nodiscard]] std::size_t size() const { return arms_.size(); }
  [[nodiscard]] std::size_t tries(std::size_t arm) const { return arms_[arm].log_us.size(); }
  [[nodiscard]] bool failed(std::size_t arm) const { return arms_[arm].failed; }
  /// Median of ln(us); nullopt when never measured.
  [[nodiscard]] std::optional<double> log_us(std::size_t arm) const;
  /// The measured arm with the lowest median; nullopt when none is.
  [[nodiscard]] std::optional<std::size_t> best() const;
  [[nodiscard]] std::size_t measured() const { return measured_; }

 private:
  struct Arm {
    std::vector<double> log_us;
    bool failed = false;
  };
  std::vector<Arm> arms_;
  std::size_t measured_ = 0;
};

}  // namespace dynamiccl
