#include "tuner/agents/bandit.hpp"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>

#include "core/statistics.hpp"

namespace dynamiccl {
namespace {

constexpr double kInverseSqrt2Pi = 0.3989422804014327;

double normal_density(double z) { return kInverseSqrt2Pi * std::exp(-0.5 * z * z); }
double normal_distribution(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

/// Probability that `arm` is faster than the default.
double faster_than_default(const Posterior& posterior, Eigen::Index arm) {
  const double gap = posterior.mean[0] - posterior.mean[arm];
  const double variance = posterior.covariance(0, 0) + posterior.covariance(arm, arm) -
                          2 * posterior.covariance(0, arm);
  return normal_distribution(gap / std::sqrt(std::max(variance, 1e-10)));
}

/// Draws from a joint posterior.
class PosteriorSampler {
 public:
  explicit PosteriorSampler(const Posterior& posterior)
      : mean_(posterior.mean),
        // LDLT takes what rounding has made slightly indefinite.
        factor_(Eigen::MatrixXd(
            posterior.covariance +
            1e-9 * Eigen::MatrixXd::Identity(posterior.mean.size(), posterior.mean.size()))),
        scale_(factor_.vectorD().cwiseMax(0).cwiseSqrt()) {}

  Eigen::VectorXd draw(FastRandom& random) const {
    Eigen::VectorXd sample(mean_.size());
    for (Eigen::Index i = 0; i < sample.size(); ++i) sample[i] = scale_[i] * random.normal();
    sample = factor_.matrixL() * sample;
    sample = factor_.transpositionsP().transpose() * sample;
    return mean_ + sample;
  }

 private:
  Eigen::VectorXd mean_;
  Eigen::LDLT<Eigen::MatrixXd> factor_;
  Eigen::VectorXd scale_;
};

}  // namespace

ArmOutlook outlook_of(const Posterior& posterior, const std::vector<bool>& failed, double noise_sd,
                      double safety) {
  const Eigen::Index arms = posterior.mean.size();
  ArmOutlook outlook;
  outlook.mean = posterior.mean;
  outlook.sd = posterior.covariance.diagonal().cwiseMax(1e-10).cwiseSqrt();
  outlook.expected_gain = Eigen::VectorXd::Zero(arms);
  Eigen::Index best = 0;
  for (Eigen::Index a = 1; a < arms; ++a)
    if (!failed[static_cast<std::size_t>(a)] && posterior.mean[a] < posterior.mean[best]) best = a;
  for (Eigen::Index a = 0; a < arms; ++a) {
    if (failed[static_cast<std::size_t>(a)] || a == best) continue;
    // What counts is the difference to the best, which shares the task's level with it.
    const double variance = posterior.covariance(a, a) + posterior.covariance(best, best) -
                            2 * posterior.covariance(a, best);
    const double known = std::max(variance, 1e-12);
    const double sd = known / std::sqrt(known + noise_sd * noise_sd);
    const double gap = posterior.mean[best] - posterior.mean[a];
    const double z = gap / sd;
    outlook.expected_gain[a] = gap * normal_distribution(z) + sd * normal_density(z);
  }
  outlook.best = static_cast<std::size_t>(best);
  outlook.recommended = faster_than_default(posterior, best) >= safety ? outlook.best : 0;
  return outlook;
}

BeliefMemory::Entry& BeliefMemory::entry(const Task& task) {
  auto found = entries_.find(task.key);
  if (found == entries_.end()) {
    Entry fresh;
    fresh.view = make_view(task, belief_.options());
    fresh.failed.assign(task.space->arms().size(), false);
    fresh.tries.assign(task.space->arms().size(), 0);
    fresh.seen.assign(task.space->arms().size(), 0);
    found = entries_.emplace(task.key, std::move(fresh)).first;
  }
  return found->second;
}

const BeliefMemory::Entry* BeliefMemory::find(const Task& task) const {
  const auto found = entries_.find(task.key);
  return found == entries_.end() ? nullptr : &found->second;
}

void BeliefMemory::learn(const Task& task, std::size_t arm, const Trial& trial) {
  Entry& state = entry(task);
  ++state.evaluations;
  if (!trial.ok || !(trial.time.count() > 0)) {
    if (arm != 0) state.failed[arm] = true;
    return;
  }
  const double log_us = std::log(trial.time.count());
  ++state.tries[arm];
  state.seen[arm] += (log_us - state.seen[arm]) / state.tries[arm];
  belief_.observe(state.view, arm, log_us);
}

void BeliefMemory::reopen(const RegimeKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  belief_.forget(found->second.view.task.id);
  entries_.erase(found);
}

std::vector<bool> BeliefMemory::open_arms(const Entry& state, const ArmOutlook& now) const {
  constexpr int kLooks = 3;
  std::vector<bool> open(state.failed.size(), false);
  for (std::size_t a = 0; a < open.size(); ++a) {
    const double gain = now.expected_gain[static_cast<Eigen::Index>(a)];
    // A tie is not worth many launches: twice the gain is asked of what was measured before.
    const double asked = options_.stop_gain * (state.tries[a] == 0 ? 1 : 2);
    open[a] = !state.failed[a] && gain >= asked && state.tries[a] < kLooks;
  }
  // What is recommended was run here at least once, and so was the default it is compared with.
  if (state.tries[now.recommended] == 0) open[now.recommended] = true;
  if (state.tries[0] == 0 && !state.failed[0]) open[0] = true;
  // A promising arm that is not yet certain enough is worth another look or two.
  const double promise = now.mean[0] - now.mean[static_cast<Eigen::Index>(now.best)];
  if (now.recommended != now.best && promise > 2 * options_.stop_gain &&
      state.tries[now.best] < kLooks)
    open[now.best] = true;
  return open;
}

bool BeliefMemory::finished(const Task& task) const {
  if (task.space->arms().size() <= 1) return true;
  const Entry* state = find(task);
  if (state == nullptr || state->evaluations == 0) return false;
  if (options_.max_evaluations > 0 && state->evaluations >= options_.max_evaluations) return true;
  const std::vector<bool> open = open_arms(*state, outlook(*state));
  return std::none_of(open.begin(), open.end(), [](bool is_open) { return is_open; });
}

std::size_t BeliefMemory::recommend(const Task& task) const {
  const Entry* state = find(task);
  return state == nullptr ? 0 : outlook(*state).recommended;
}

Bandit::Bandit(const AgentOptions& options, const BeliefOptions& belief)
    : memory_(belief, options), random_(options.seed) {}

Choice Bandit::act(const Task& task) {
  const BeliefMemory::Entry& state = memory_.entry(task);
  if (memory_.finished(task)) return {memory_.recommend(task), 1, false};
  const Posterior posterior = memory_.posterior(state);
  const ArmOutlook outlook = outlook_of(
      posterior, state.failed, memory_.belief().options().noise_sd, memory_.options().safety);
  const std::vector<bool> open = memory_.open_arms(state, outlook);
  // Propensity by counting draws: the exact one has no closed form.
  constexpr int kDraws = 64;
  const PosteriorSampler sampler(posterior);
  std::vector<int> wins(open.size(), 0);
  int counted = 0;
  std::optional<std::size_t> chosen;
  for (int d = 0; d < kDraws; ++d) {
    const Eigen::VectorXd sample = sampler.draw(random_);
    std::size_t winner = 0;
    for (std::size_t a = 1; a < open.size(); ++a)
      if (!state.failed[a] &&
          sample[static_cast<Eigen::Index>(a)] < sample[static_cast<Eigen::Index>(winner)])
        winner = a;
    if (!open[winner]) continue;
    ++wins[winner];
    ++counted;
    if (!chosen) chosen = winner;
  }
  if (!chosen) {
    // Every draw named a known arm: take the open one with the most to gain.
    std::size_t most =
        static_cast<std::size_t>(std::find(open.begin(), open.end(), true) - open.begin());
    for (std::size_t a = 0; a < open.size(); ++a)
      if (open[a] && outlook.expected_gain[static_cast<Eigen::Index>(a)] >
                         outlook.expected_gain[static_cast<Eigen::Index>(most)])
        most = a;
    return {most, 1, true};
  }
  return {*chosen, static_cast<double>(wins[*chosen]) / counted, true};
}

}  // namespace dynamiccl
