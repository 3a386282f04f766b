#include "train/synchronise/round_lengths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace dynamiccl {

RoundLengths::RoundLengths(const TrainingSpec& spec)
    : whole_(spec), leg_(leg_of(spec, false)), steps_(round_steps(leg_)) {}

bool RoundLengths::plain() const {
  if (method_row(leg_.method).sums == SumPlace::neighbours) return false;
  return leg_.synchronisation == Synchronisation::bsp || rounds_ < plain_rounds();
}

std::uint64_t RoundLengths::plain_rounds() const {
  if (leg_.synchronisation != Synchronisation::post_local) return 0;
  const auto tau = static_cast<std::uint64_t>(leg_.local_steps);
  return (static_cast<std::uint64_t>(leg_.local_after) + tau - 1) / tau;
}

void RoundLengths::switch_over() {
  leg_ = leg_of(whole_, true);
  steps_ = round_steps(leg_);
}

void RoundLengths::add_loss(double loss) {
  if (leg_.synchronisation != Synchronisation::adacomm) return;
  if (!has_first_) first_loss_ = loss;
  has_first_ = true;
  loss_ += loss;
  step_losses_.push_back(loss);
}

bool RoundLengths::end_round(int done) {
  ++rounds_;
  if (leg_.synchronisation != Synchronisation::adacomm) return false;
  log_.push_back(done);
  since_ += steps_;
  return since_ >= leg_.adapt_every && steps_ > 1;
}

std::vector<double> RoundLengths::own_losses() const { return {first_loss_, loss_ / since_}; }

int RoundLengths::adapted(double first, double loss) const {
  return adapted_steps(steps_, leg_.local_steps, first, loss);
}

namespace {

/// Of a loss: roundings of sums in another order may turn a step up.
constexpr double kSlack = 1e-5;

double mean_of(const std::vector<std::vector<double>>& losses, std::size_t which) {
  double sum = 0;
  for (const auto& each : losses) sum += each[which];
  return sum / static_cast<double>(losses.size());
}

}  // namespace

void RoundLengths::adapt(const std::vector<std::vector<double>>& losses) {
  steps_ = adapted(mean_of(losses, 0), mean_of(losses, 1));
  since_ = 0;
  loss_ = 0;
}

bool RoundLengths::could_adapt_to(int steps, const std::vector<std::vector<double>>& losses) const {
  const double first = mean_of(losses, 0);
  const double loss = mean_of(losses, 1);
  const double near[] = {loss * (1 - kSlack), loss, loss * (1 + kSlack)};
  return std::any_of(std::begin(near), std::end(near),
                     [&](double each) { return adapted(first, each) == steps; });
}

std::string misfit_of_rounds(const TrainingSpec& spec, const RoundLog& log,
                             const std::vector<double>& losses) {
  int by_rule = spec.local_steps;
  int shortest = spec.local_steps;
  int longest = spec.local_steps;
  std::size_t step = 0;
  int since = 0;
  double sum = 0;
  for (std::size_t round = 0; round < log.size(); ++round) {
    const int steps = log[round];
    if (steps < shortest || steps > longest)
      return fmt::format("round {} had {} steps, by the losses before it the rule gives {}", round,
                         steps, by_rule);
    by_rule = shortest = longest = steps;
    if (losses.size() - step < static_cast<std::size_t>(steps))
      return fmt::format("round {} had {} steps, {} losses of it are known", round, steps,
                         losses.size() - step);
    for (int i = 0; i < steps; ++i) sum += losses[step++];
    since += steps;
    if (since < spec.adapt_every || steps == 1) continue;
    const auto after = [&](double scale) {
      return adapted_steps(steps, spec.local_steps, losses.front(), scale * sum / since);
    };
    const auto [least, most] = std::minmax({after(1 - kSlack), after(1), after(1 + kSlack)});
    by_rule = after(1);
    shortest = least;
    longest = most;
    since = 0;
    sum = 0;
  }
  return step == losses.size()
             ? ""
             : fmt::format("{} steps were done, the log has {}", losses.size(), step);
}

}  // namespace dynamiccl
