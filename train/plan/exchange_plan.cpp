#include "train/plan/exchange_plan.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

namespace dynamiccl {
namespace {

/// DDP's first bucket is small, so that communication begins early (kDefaultFirstBucketBytes).
constexpr std::size_t kFirstBucketBytes = 1U << 20;

std::vector<Group> groups_of(const TrainingSpec& spec, const std::vector<Gradient>& gradients,
                             const CostTable& cost) {
  switch (method_row(spec.method).grouping) {
    case MessageGrouping::merged:
      return spec.merge == MergeRule::optimal ? optimal_merge(gradients, cost)
                                              : greedy_merge(gradients, cost, cost.start_up_us());
    case MessageGrouping::buckets:
      return up_to(gradients, bucket_of(spec).count());
    case MessageGrouping::filled:
      return filled(gradients, kFirstBucketBytes, bucket_of(spec).count());
    case MessageGrouping::parts:
      // Every message is agreed upon and wakes a thread on each rank: tensors of a few kilobytes go
      // with their neighbours, the same ones in every step, so that sums stay the same bits.
      return up_to(gradients, partition_of(spec).count());
    case MessageGrouping::together:
      return all_together(gradients.size());
    case MessageGrouping::alone:
      break;
  }
  return each_alone(gradients.size());
}

/// What a message may cost a GPU's step besides its own time, microseconds: collectives and updates
/// are launched between the kernels of the backward pass and share the GPU with them. Measured on
/// H200s: 45 to 85.
constexpr std::array<double, 3> kUnseenUs{20, 50, 150};

bool is_said(Bytes size) { return size.count() > 0; }

/// Credits that a part is tried with: small parts may go several at a time, as every time is agreed
/// upon; large ones only delay what is more urgent.
std::vector<Bytes> credits_of(const TrainingSpec& spec, Bytes part) {
  constexpr std::uint64_t kSmall = 1U << 20;
  if (is_said(spec.credit)) return {spec.credit};
  if (part.count() > kSmall) return {part};
  return {part, Bytes(4 * part.count())};
}

/// What a method may be left to choose, smallest first; `spec` alone where everything is said.
std::vector<TrainingSpec> choices(const TrainingSpec& spec) {
  std::vector<TrainingSpec> list;
  const MethodChoice choice = method_row(spec.method).choice;
  if (choice == MethodChoice::bucket && !is_said(spec.bucket)) {
    for (const std::uint64_t mib : {1, 2, 4, 8, 16, 25}) {
      list.push_back(spec);
      list.back().bucket = Bytes(mib << 20);
    }
  } else if (choice == MethodChoice::parts) {
    const auto parts = is_said(spec.partition)
                           ? std::vector<Bytes>{spec.partition}
                           : std::vector{Bytes(1U << 19), Bytes(1U << 20), Bytes(2U << 20),
                                         Bytes(4U << 20), Bytes(8U << 20)};
    for (const Bytes part : parts) {
      for (const Bytes credit : credits_of(spec, part)) {
        list.push_back(spec);
        list.back().partition = part;
        list.back().credit = credit;
      }
    }
  } else {
    list.push_back(spec);
  }
  return list;
}

/// Do both send the same messages by the same rule?
bool is_same(const ExchangePlan& a, const ExchangePlan& b) {
  // A credit beyond all there is holds nothing back.
  const std::size_t all = a.elements() * sizeof(float);
  return std::min(a.credit_bytes, all) == std::min(b.credit_bytes, all) &&
         std::equal(a.pieces.begin(), a.pieces.end(), b.pieces.begin(), b.pieces.end(),
                    [](const Piece& one, const Piece& other) {
                      return one.offset == other.offset && one.count == other.count;
                    });
}

ExchangePlan plan_of_groups(const TrainingSpec& spec, const std::vector<Gradient>& gradients,
                            const std::vector<Group>& groups) {
  ExchangePlan plan;
  plan.method = spec.method;
  plan.packing = spec.packing;
  plan.codec = codec_settings(spec);
  plan.credit_bytes = credit_of(spec).count();
  for (const auto& gradient : gradients) plan.counts.push_back(gradient.bytes / sizeof(float));
  std::size_t largest = largest_piece(spec);
  // A model of fewer parts than servers would leave some of those idle.
  if (const auto servers = static_cast<std::size_t>(servers_of(spec, 0)); servers > 1)
    largest = std::min(largest, (plan.elements() + servers - 1) / servers);
  plan.pieces = cut(plan.counts, groups, largest);
  if (architecture_of(spec.method) == Architecture::ps) {
    plan.servers = servers_of(spec, 0);
    plan.colocated = spec.placement == ServerPlacement::colocated;
    plan.server_sgd = server_sgd(spec);
    plan.server_sums = spec.server_sums;
    assign_servers(plan.pieces, plan.servers);
  }
  return plan;
}

}  // namespace

bool clearly_wins(const TriedPath& path, const TriedPath& plainer) {
  constexpr double kSaved = 0.2;
  return path.message_us < plainer.message_us * (1 - kSaved);
}

GradientPath choose_path(const std::vector<TriedPath>& tried) {
  if (tried.empty()) return {};
  const TriedPath* best = &tried.front();
  for (const TriedPath& path : tried)
    if (clearly_wins(path, *best)) best = &path;
  return best->path;
}

std::optional<Sgd> server_sgd(const TrainingSpec& spec) {
  if (spec.optimizer == OptimizerPlace::worker) return std::nullopt;
  return Sgd{static_cast<float>(spec.learning_rate), static_cast<float>(optimizer_momentum(spec))};
}

/// A whole message where the method does not cut; servers take pieces, so that they share the load.
std::size_t largest_piece(const TrainingSpec& spec) {
  const bool whole =
      architecture_of(spec.method) == Architecture::ring &&
      (method_row(spec.method).grouping != MessageGrouping::parts || !is_said(spec.partition));
  return whole ? std::numeric_limits<std::size_t>::max() / 2
               : static_cast<std::size_t>(partition_of(spec).count() / sizeof(float));
}

ExchangePlan make_exchange_plan(const TrainingSpec& spec, const std::vector<Gradient>& gradients,
                                const CostTable& cost) {
  return plan_of_groups(spec, gradients, groups_of(spec, gradients, cost));
}

std::vector<ExchangePlan> possible_plans(const TrainingSpec& spec, const StepProfile& profile,
                                         const LinkCost& link, bool on_gpu) {
  std::vector<ExchangePlan> plans;
  const auto add = [&](ExchangePlan plan) {
    const auto same = [&](const ExchangePlan& other) { return is_same(plan, other); };
    if (std::none_of(plans.begin(), plans.end(), same)) plans.push_back(std::move(plan));
  };
  const auto& gradients = profile.gradients;
  for (const TrainingSpec& choice : choices(spec))
    add(make_exchange_plan(choice, gradients, link.time));
  if (method_row(spec.method).choice != MethodChoice::merge || spec.merge != MergeRule::optimal)
    return plans;
  add(make_exchange_plan(spec, gradients, link.busy_time));
  if (!on_gpu) return plans;
  const auto add_groups = [&](const std::vector<Group>& groups) {
    add(plan_of_groups(spec, gradients, groups));
  };
  for (const double unseen_us : kUnseenUs) {
    add_groups(
        optimal_merge(gradients, [&](std::size_t bytes) { return link.time(bytes) + unseen_us; }));
  }
  for (const std::size_t mib : {4, 8, 25, 50}) add_groups(up_to(gradients, mib << 20));
  add_groups(all_together(gradients.size()));
  return plans;
}

Expectation expected_step(const ExchangePlan& plan, const StepProfile& profile,
                          const LinkCost& link, bool on_gpu) {
  const double step_us = predict_step(plan, profile, link).step_us;
  const double unseen_us = on_gpu ? kUnseenUs.back() * static_cast<double>(plan.pieces.size()) : 0;
  return {step_us, step_us + unseen_us};
}

StepPrediction predict_step(const ExchangePlan& plan, const StepProfile& profile,
                            const LinkCost& link) {
  return predict_step(plan.method, profile, plan.pieces, link, plan.credit_bytes);
}

}  // namespace dynamiccl
