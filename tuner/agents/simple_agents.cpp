#include "tuner/agents/simple_agents.hpp"

#include <algorithm>

#include "core/statistics/fast_random.hpp"

namespace dynamiccl {

ArmHistory& KeyedHistory::of(const Task& task) {
  return histories_.try_emplace(task.key, task.space->arms().size()).first->second;
}

const ArmHistory* KeyedHistory::find(const Task& task) const {
  const auto found = histories_.find(task.key);
  return found == histories_.end() ? nullptr : &found->second;
}

std::size_t KeyedHistory::best_or_default(const Task& task) const {
  const ArmHistory* history = find(task);
  return history == nullptr ? 0 : history->best().value_or(0);
}

namespace {

class DefaultAgent final : public Agent {
 public:
  [[nodiscard]] std::string_view name() const override { return "default"; }
  [[nodiscard]] bool explores() const override { return false; }
  Choice act(const Task&) override { return {0, 1, false}; }
  void learn(const Task&, std::size_t, const Trial&) override {}
  [[nodiscard]] bool finished(const Task&) const override { return true; }
  [[nodiscard]] std::size_t recommend(const Task&) const override { return 0; }
  void reopen(const RegimeKey&) override {}
};

/// What the prior thinks fastest, and nothing measured: of a search, all that it gains over this is
/// its own.
class PriorAgent final : public Agent {
 public:
  [[nodiscard]] std::string_view name() const override { return "prior"; }
  [[nodiscard]] bool explores() const override { return false; }
  Choice act(const Task& task) override { return {recommend(task), 1, false}; }
  void learn(const Task&, std::size_t, const Trial&) override {}
  [[nodiscard]] bool finished(const Task&) const override { return true; }
  [[nodiscard]] std::size_t recommend(const Task& task) const override {
    const auto& prior = task.prior_log_us;
    return static_cast<std::size_t>(std::min_element(prior.begin(), prior.end()) - prior.begin());
  }
  void reopen(const RegimeKey&) override {}
};

class RandomAgent final : public Agent {
 public:
  explicit RandomAgent(const AgentOptions& options) : options_(options), random_(options.seed) {}
  [[nodiscard]] std::string_view name() const override { return "random"; }
  Choice act(const Task& task) override {
    const ArmHistory& history = memory_.of(task);
    std::vector<std::size_t> open;
    for (std::size_t a = 0; a < history.size(); ++a)
      if (history.tries(a) == 0 && !history.failed(a)) open.push_back(a);
    if (finished(task) || open.empty()) return {recommend(task), 1, false};
    return {open[random_.below(open.size())], 1.0 / static_cast<double>(open.size()), true};
  }
  void learn(const Task& task, std::size_t arm, const Trial& trial) override {
    memory_.of(task).add(arm, trial);
  }
  [[nodiscard]] bool finished(const Task& task) const override {
    const ArmHistory* history = memory_.find(task);
    if (history == nullptr) return false;
    if (options_.max_evaluations > 0 &&
        history->measured() >= static_cast<std::size_t>(options_.max_evaluations))
      return true;
    for (std::size_t a = 0; a < history->size(); ++a)
      if (history->tries(a) == 0 && !history->failed(a)) return false;
    return true;
  }
  [[nodiscard]] std::size_t recommend(const Task& task) const override {
    return memory_.best_or_default(task);
  }
  void reopen(const RegimeKey& key) override { memory_.erase(key); }

 private:
  AgentOptions options_;
  FastRandom random_;
  KeyedHistory memory_;
};

class ExhaustiveAgent final : public Agent {
 public:
  explicit ExhaustiveAgent(const AgentOptions& options) : repeats_(std::max(1, options.repeats)) {}
  [[nodiscard]] std::string_view name() const override { return "exhaustive"; }
  Choice act(const Task& task) override {
    const auto next = next_arm(task);
    return next ? Choice{*next, 1, true} : Choice{recommend(task), 1, false};
  }
  void learn(const Task& task, std::size_t arm, const Trial& trial) override {
    memory_.of(task).add(arm, trial);
  }
  [[nodiscard]] bool finished(const Task& task) const override { return !next_arm(task); }
  [[nodiscard]] std::size_t recommend(const Task& task) const override {
    return memory_.best_or_default(task);
  }
  void reopen(const RegimeKey& key) override { memory_.erase(key); }

 private:
  /// The first arm with the fewest measurements.
  [[nodiscard]] std::optional<std::size_t> next_arm(const Task& task) const {
    const ArmHistory* history = memory_.find(task);
    if (history == nullptr) return 0;
    std::optional<std::size_t> next;
    for (std::size_t a = 0; a < history->size(); ++a) {
      if (history->failed(a) || history->tries(a) >= static_cast<std::size_t>(repeats_)) continue;
      if (!next || history->tries(a) < history->tries(*next)) next = a;
    }
    return next;
  }
  int repeats_;
  KeyedHistory memory_;
};

}  // namespace

std::unique_ptr<Agent> make_default_agent() { return std::make_unique<DefaultAgent>(); }
std::unique_ptr<Agent> make_prior_agent() { return std::make_unique<PriorAgent>(); }
std::unique_ptr<Agent> make_random_agent(const AgentOptions& options) {
  return std::make_unique<RandomAgent>(options);
}
std::unique_ptr<Agent> make_exhaustive_agent(const AgentOptions& options) {
  return std::make_unique<ExhaustiveAgent>(options);
}

}  // namespace dynamiccl
