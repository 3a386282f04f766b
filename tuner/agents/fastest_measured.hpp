#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "tuner/agents/agent.hpp"

namespace dynamiccl {

/// An agent where measuring again brings the same to the last digit, as in a simulation: each
/// task's default is measured first, then what the agent asks for, nothing twice, and what was the
/// fastest is chosen. Nothing else need be believed, and no choice is slower than the default.
class FastestMeasured final : public Agent {
 public:
  explicit FastestMeasured(std::unique_ptr<Agent> asks) : asks_(std::move(asks)) {}
  [[nodiscard]] std::string_view name() const override { return asks_->name(); }
  Choice act(const Task& task) override { return asks_->act(task); }
  [[nodiscard]] bool plans() const override { return asks_->plans(); }
  std::vector<PlannedChoice> plan(const std::vector<const Task*>& tasks, std::size_t most) override;
  void learn(const Task& task, std::size_t arm, const Trial& trial) override;
  [[nodiscard]] bool finished(const Task& task) const override { return asks_->finished(task); }
  [[nodiscard]] std::size_t recommend(const Task& task) const override;
  void reopen(const RegimeKey& key) override;

 private:
  /// A bin holds several sizes, which take different times.
  using Place = std::pair<RegimeKey, std::optional<Bytes>>;
  static Place place_of(const Task& task) { return {task.key, task.state.nominal_size}; }
  /// Tells the agent again what is known of a choice. @returns false where it is not known
  bool told(const Task& task, std::size_t arm);

  std::unique_ptr<Agent> asks_;
  std::map<Place, std::map<std::size_t, double>> seen_;  ///< by arm
};

}  // namespace dynamiccl
