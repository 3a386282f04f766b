#include "workers/train/synchronisation/round_lengths.hpp"

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
}

bool RoundLengths::end_round() {
  ++rounds_;
  if (leg_.synchronisation != Synchronisation::adacomm) return false;
  log_.push_back(steps_);
  since_ += steps_;
  return since_ >= leg_.adapt_every && steps_ > 1;
}

std::vector<double> RoundLengths::own_losses() const { return {first_loss_, loss_ / since_}; }

int RoundLengths::adapted(double first, double loss) const {
  return adapted_steps(steps_, leg_.local_steps, first, loss);
}

namespace {

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
  constexpr double kSlack = 1e-5;
  const double first = mean_of(losses, 0);
  const double loss = mean_of(losses, 1);
  const double near[] = {loss * (1 - kSlack), loss, loss * (1 + kSlack)};
  return std::any_of(std::begin(near), std::end(near),
                     [&](double each) { return adapted(first, each) == steps; });
}

}  // namespace dynamiccl
