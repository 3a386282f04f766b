#include "benchmarks/other_agents.hpp"

#ifdef DYNAMICCL_HAS_DLIB
#include <dlib/global_optimization.h>
#endif

#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <vector>

#include "tuner/agents/bandit.hpp"
#include "tuner/agents/simple_agents.hpp"

namespace dynamiccl {

#ifdef DYNAMICCL_HAS_DLIB
namespace {

class DlibAgent final : public Agent {
 public:
  explicit DlibAgent(const AgentOptions& options) : seed_(options.seed) {}
  [[nodiscard]] std::string_view name() const override { return "dlib"; }

  Choice act(const Task& task) override {
    Search& search = searches_[task.key];
    const ActionSpace& space = *task.space;
    if (!search.optimizer) {
      search.optimizer = std::make_unique<dlib::global_function_search>(specification(space));
      search.optimizer->set_seed(seed_++);
    }
    search.request =
        std::make_unique<dlib::function_evaluation_request>(search.optimizer->get_next_x());
    search.arm = nearest(space, search.request->x());
    return {search.arm, 1, true};
  }

  void learn(const Task& task, std::size_t arm, const Trial& trial) override {
    memory_.of(task).add(arm, trial);
    Search& search = searches_[task.key];
    if (!search.request || arm != search.arm) return;  // the reference
    search.request->set(trial.ok ? -std::log(trial.time.count()) : -100.0);
    search.request.reset();
  }

  [[nodiscard]] bool finished(const Task& task) const override {
    return task.space->arms().size() <= 1;
  }
  [[nodiscard]] std::size_t recommend(const Task& task) const override {
    return memory_.best_or_default(task);
  }
  void reopen(const RegimeKey& key) override {
    memory_.erase(key);
    searches_.erase(key);
  }

 private:
  struct Search {
    std::unique_ptr<dlib::global_function_search> optimizer;
    std::unique_ptr<dlib::function_evaluation_request> request;
    std::size_t arm = 0;
  };

  /// Where there is something to choose: dlib knows no dimension of one value.
  static std::vector<std::size_t> free_knobs(const ActionSpace& space) {
    std::vector<std::size_t> knobs;
    for (std::size_t k = 0; k < space.knobs().size(); ++k)
      if (space.knobs()[k].values.size() > 1) knobs.push_back(k);
    return knobs;
  }

  static dlib::function_spec specification(const ActionSpace& space) {
    const std::vector<std::size_t> knobs = free_knobs(space);
    dlib::matrix<double, 0, 1> low(static_cast<long>(knobs.size()));
    dlib::matrix<double, 0, 1> high(low.size());
    for (long k = 0; k < low.size(); ++k) {
      low(k) = 0;
      high(k) =
          static_cast<double>(space.knobs()[knobs[static_cast<std::size_t>(k)]].values.size() - 1);
    }
    return {low, high, std::vector<bool>(knobs.size(), true)};
  }

  static std::size_t nearest(const ActionSpace& space, const dlib::matrix<double, 0, 1>& point) {
    const std::vector<std::size_t> knobs = free_knobs(space);
    std::size_t best = 0;
    double least = INFINITY;
    for (std::size_t a = 0; a < space.arms().size(); ++a) {
      double distance = 0;
      for (long k = 0; k < point.size(); ++k)
        distance += std::abs(point(k) - space.arms()[a][knobs[static_cast<std::size_t>(k)]]);
      if (distance >= least) continue;
      least = distance;
      best = a;
    }
    return best;
  }

  std::uint64_t seed_;
  KeyedHistory memory_;
  std::map<RegimeKey, Search> searches_;
};

}  // namespace

std::unique_ptr<Agent> make_dlib_agent(const AgentOptions& options) {
  return std::make_unique<DlibAgent>(options);
}
#else
std::unique_ptr<Agent> make_dlib_agent(const AgentOptions&) { return nullptr; }
#endif

namespace {

class FittedBandit final : public Agent {
 public:
  explicit FittedBandit(const AgentOptions& options)
      : options_(options), bandit_(std::make_unique<Bandit>(options, BeliefOptions{})) {}
  [[nodiscard]] std::string_view name() const override { return "bandit-fitted"; }
  Choice act(const Task& task) override { return bandit_->act(task); }
  [[nodiscard]] bool plans() const override { return true; }
  std::vector<PlannedChoice> plan(const std::vector<const Task*>& tasks,
                                  std::size_t most) override {
    return bandit_->plan(tasks, most);
  }
  void learn(const Task& task, std::size_t arm, const Trial& trial) override {
    bandit_->learn(task, arm, trial);
    looks_.push_back({task, arm, trial});
    if (looks_.size() >= 8 && std::has_single_bit(looks_.size())) fit();
  }
  [[nodiscard]] bool finished(const Task& task) const override { return bandit_->finished(task); }
  [[nodiscard]] std::size_t recommend(const Task& task) const override {
    return bandit_->recommend(task);
  }
  void reopen(const RegimeKey& key) override {
    std::erase_if(looks_, [&](const Look& look) { return look.task.key == key; });
    bandit_->reopen(key);
  }

 private:
  struct Look {
    Task task;
    std::size_t arm = 0;
    Trial trial;
  };
  static constexpr std::array kFitted{&BeliefOptions::task_sd,
                                      &BeliefOptions::implementation_sd,
                                      &BeliefOptions::resource_sd,
                                      &BeliefOptions::pieces_sd,
                                      &BeliefOptions::arm_sd,
                                      &BeliefOptions::size_scale,
                                      &BeliefOptions::resource_scale,
                                      &BeliefOptions::noise_sd,
                                      &BeliefOptions::other_implementation,
                                      &BeliefOptions::other_collective};

  /// With the typed values as prior: a factor of e is one standard deviation.
  [[nodiscard]] double judged(const BeliefOptions& options) const {
    TimeBelief belief(options);
    std::map<RegimeKey, BeliefView> views;
    for (const Look& look : looks_) {
      if (!look.trial.ok) continue;
      const auto found = views.find(look.task.key);
      const BeliefView& view =
          found != views.end() ? found->second
                               : views.emplace(look.task.key, make_view(look.task)).first->second;
      belief.observe(view, look.arm, std::log(look.trial.time.count()), look.trial.launch);
    }
    double sum = belief.log_likelihood();
    const BeliefOptions typed;
    for (const auto part : kFitted) sum -= 0.5 * std::pow(std::log(options.*part / typed.*part), 2);
    return sum;
  }

  void fit() {
    double highest = judged(belief_);
    for (const double factor : {2.0, 0.5, 1.4, 1 / 1.4})
      for (const auto part : kFitted) {
        BeliefOptions other = belief_;
        other.*part *= factor;
        if (std::max(other.other_implementation, other.other_collective) > 0.95) continue;
        const double sum = judged(other);
        if (sum <= highest) continue;
        highest = sum;
        belief_ = other;
      }
    bandit_ = std::make_unique<Bandit>(options_, belief_);
    for (const Look& look : looks_) bandit_->learn(look.task, look.arm, look.trial);
  }

  AgentOptions options_;
  BeliefOptions belief_;
  std::unique_ptr<Bandit> bandit_;
  std::vector<Look> looks_;
};

}  // namespace

std::unique_ptr<Agent> make_fitted_bandit(const AgentOptions& options) {
  return std::make_unique<FittedBandit>(options);
}

}  // namespace dynamiccl
