#include "workers/train/exchange/exchange_plan.hpp"

#include <limits>

namespace dynamiccl {
namespace {

/// DDP's first bucket is small, so that communication begins early (kDefaultFirstBucketBytes).
constexpr std::size_t kFirstBucketBytes = 1U << 20;

std::vector<Group> groups_of(const TrainingSpec& spec, const std::vector<Gradient>& gradients,
                             const CostTable& cost) {
  switch (spec.method) {
    case TrainingMethod::mg_wfbp:
      return spec.merge == MergeRule::optimal ? optimal_merge(gradients, cost)
                                              : greedy_merge(gradients, cost, cost.start_up_us());
    case TrainingMethod::dear:
      return up_to(gradients, spec.bucket.count());
    case TrainingMethod::ddp:
      return filled(gradients, kFirstBucketBytes, spec.bucket.count());
    case TrainingMethod::bsp_a2a:
    case TrainingMethod::bsp_ps:
      return all_together(gradients.size());
    default:
      return each_alone(gradients.size());
  }
}

}  // namespace

std::optional<Sgd> server_sgd(const TrainingSpec& spec) {
  if (spec.optimizer == OptimizerPlace::worker) return std::nullopt;
  return Sgd{static_cast<float>(spec.learning_rate), static_cast<float>(spec.momentum)};
}

/// A whole message where the method does not cut; servers take pieces, so that they share the load.
std::size_t largest_piece(const TrainingSpec& spec) {
  const bool whole = architecture_of(spec.method) == Architecture::ring &&
                     spec.method != TrainingMethod::bytescheduler_a2a;
  return whole ? std::numeric_limits<std::size_t>::max() / 2
               : static_cast<std::size_t>(spec.partition.count() / sizeof(float));
}

ExchangePlan make_exchange_plan(const TrainingSpec& spec, const std::vector<Gradient>& gradients,
                                const CostTable& cost) {
  ExchangePlan plan;
  plan.method = spec.method;
  plan.credit_bytes = spec.credit.count();
  for (const auto& gradient : gradients) plan.counts.push_back(gradient.bytes / sizeof(float));
  plan.pieces = cut(plan.counts, groups_of(spec, gradients, cost), largest_piece(spec));
  if (architecture_of(spec.method) == Architecture::ps) {
    plan.servers = spec.servers;
    plan.server_sgd = server_sgd(spec);
    assign_servers(plan.pieces, spec.servers);
  }
  return plan;
}

ExchangePlan make_exchange_plan(const TrainingSpec& spec, const StepProfile& profile,
                                const LinkCost& link) {
  auto idle = make_exchange_plan(spec, profile.gradients, link.time);
  if (spec.method != TrainingMethod::mg_wfbp || spec.merge != MergeRule::optimal) return idle;
  auto busy = make_exchange_plan(spec, profile.gradients, link.busy_time);
  const bool better =
      predict_step(busy, profile, link).step_us < predict_step(idle, profile, link).step_us;
  return better ? busy : idle;
}

StepPrediction predict_step(const ExchangePlan& plan, const StepProfile& profile,
                            const LinkCost& link) {
  return predict_step(plan.method, profile, plan.pieces, link, plan.credit_bytes);
}

}  // namespace dynamiccl
