#include "tuner/agents/belief_memory.hpp"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>

namespace dynamiccl {
namespace {

/// Measurements after which an arm counts as known.
constexpr int kLooks = 3;
constexpr double kInverseSqrt2Pi = 0.3989422804014327;

double normal_density(double z) { return kInverseSqrt2Pi * std::exp(-0.5 * z * z); }
double normal_distribution(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

}  // namespace

Eigen::MatrixXd draw_times(const Posterior& posterior, int count, FastRandom& random) {
  const Eigen::Index arms = posterior.mean.size();
  Eigen::MatrixXd samples(arms, count);
  for (Eigen::Index i = 0; i < samples.size(); ++i) samples.data()[i] = random.normal();
  // What rounding has made slightly indefinite.
  double jitter = 1e-9;
  for (int attempt = 0; attempt < 4; ++attempt, jitter *= 100) {
    const Eigen::LLT<Eigen::MatrixXd> factor(posterior.covariance +
                                             jitter * Eigen::MatrixXd::Identity(arms, arms));
    if (factor.info() != Eigen::Success) continue;
    samples = factor.matrixL() * samples;
    return samples.colwise() + posterior.mean;
  }
  // Without the correlations: still Thompson sampling, of each arm by itself.
  return (posterior.covariance.diagonal().cwiseMax(0).cwiseSqrt().asDiagonal() * samples)
             .colwise() +
         posterior.mean;
}

ArmOutlook outlook_of(const Posterior& posterior, const std::vector<bool>& failed, double noise_sd,
                      double safety) {
  return outlook_of(
      posterior.mean, posterior.covariance.diagonal(),
      [&](std::size_t arm) -> Eigen::VectorXd {
        return posterior.covariance.col(static_cast<Eigen::Index>(arm));
      },
      failed, noise_sd, safety);
}

ArmOutlook outlook_of(const Eigen::VectorXd& mean, const Eigen::VectorXd& variance,
                      const std::function<Eigen::VectorXd(std::size_t)>& with_best,
                      const std::vector<bool>& failed, double noise_sd, double safety) {
  const Eigen::Index arms = mean.size();
  ArmOutlook outlook;
  outlook.mean = mean;
  outlook.sd = variance.cwiseMax(1e-10).cwiseSqrt();
  outlook.expected_gain = Eigen::VectorXd::Zero(arms);
  Eigen::Index best = 0;
  for (Eigen::Index a = 1; a < arms; ++a)
    if (!failed[static_cast<std::size_t>(a)] && mean[a] < mean[best]) best = a;
  const Eigen::VectorXd shared = with_best(static_cast<std::size_t>(best));
  // What counts is the difference to the best, which shares the task's level with it.
  const Eigen::VectorXd difference =
      (variance.array() + variance[best] - 2 * shared.array()).matrix();
  for (Eigen::Index a = 0; a < arms; ++a) {
    if (failed[static_cast<std::size_t>(a)] || a == best) continue;
    const double known = std::max(difference[a], 1e-12);
    const double sd = known / std::sqrt(known + noise_sd * noise_sd);
    const double gap = mean[best] - mean[a];
    const double z = gap / sd;
    outlook.expected_gain[a] = gap * normal_distribution(z) + sd * normal_density(z);
  }
  outlook.best = static_cast<std::size_t>(best);
  const double faster =
      normal_distribution((mean[0] - mean[best]) / std::sqrt(std::max(difference[0], 1e-10)));
  outlook.recommended = faster >= safety ? outlook.best : 0;
  return outlook;
}

BeliefMemory::BeliefMemory(const BeliefOptions& belief, const AgentOptions& options)
    : belief_(belief), options_(options), squared_noise_(belief.noise_sd * belief.noise_sd) {}

BeliefMemory::Entry& BeliefMemory::entry(const Task& task) {
  auto found = entries_.find(task.key);
  if (found == entries_.end()) {
    Entry fresh;
    fresh.view = make_view(task);
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

const PosteriorMargins& BeliefMemory::margins(const Entry& state) const {
  belief_.refresh(state.view, state.margins);
  return state.margins;
}

const ArmOutlook& BeliefMemory::outlook(const Entry& state) const {
  if (state.outlook_version == belief_.version()) return state.outlook;
  const PosteriorMargins& margins = this->margins(state);
  state.outlook = outlook_of(
      margins.mean, margins.variance,
      [&](std::size_t arm) { return belief_.covariance_with(state.view, margins, arm); },
      state.failed, belief_.noise_sd(), options_.safety);
  state.outlook_version = belief_.version();
  return state.outlook;
}

void BeliefMemory::learn(const Task& task, std::size_t arm, const Trial& trial) {
  Entry& state = entry(task);
  ++state.evaluations;
  state.outlook_version.reset();  // also when the arm failed, of which the belief hears nothing
  if (!trial.ok || !(trial.time.count() > 0)) {
    if (arm != 0) state.failed[arm] = true;
    return;
  }
  const double log_us = std::log(trial.time.count());
  if (state.tries[arm] > 0) weigh_noise(log_us - state.seen[arm], state.tries[arm]);
  ++state.tries[arm];
  state.seen[arm] += (log_us - state.seen[arm]) / state.tries[arm];
  belief_.observe(state.view, arm, log_us, trial.launch);
}

/// One more measurement of an arm that differs from the mean of those before it.
void BeliefMemory::weigh_noise(double difference, int before) {
  constexpr double kNoticed = 1.2;
  // One spoiled launch does not make all of them noisy.
  const double squared = std::min(difference * difference / (1 + 1.0 / before), 9 * squared_noise_);
  squared_noise_ += (squared - squared_noise_) / ++noise_weight_;
  const double sd = std::max(std::sqrt(squared_noise_), 0.01);
  // Every change makes the belief anew.
  if (sd > belief_.noise_sd() * kNoticed || sd * kNoticed < belief_.noise_sd())
    belief_.set_noise(sd);
}

void BeliefMemory::reopen(const RegimeKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  belief_.forget(found->second.view.task.id);
  entries_.erase(found);
}

std::vector<bool> BeliefMemory::unsettled_arms(const Entry& state) {
  std::vector<bool> open(state.failed.size());
  for (std::size_t a = 0; a < open.size(); ++a)
    open[a] = !state.failed[a] && state.tries[a] < kLooks;
  return open;
}

std::vector<bool> BeliefMemory::open_arms(const Entry& state, const ArmOutlook& now) const {
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

}  // namespace dynamiccl
