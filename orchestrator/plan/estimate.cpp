#include "orchestrator/plan/estimate.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "core/vocabulary/backend.hpp"
#include "core/wire/work_settings.hpp"
#include "orchestrator/experiment/protocol.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

// Orders of magnitude of a two-core machine: what a launch costs before its first cell, what a call
// costs at no size, and what memory or a container bridge carries.
constexpr double kLaunchUs = 0.8e6;
constexpr double kContainerLaunchUs = 1.2e6;
constexpr double kEnvironmentUs = 3e6;
constexpr double kSharedCallUs = 3;
constexpr double kBridgeCallUs = 40;
constexpr double kSharedBytesPerUs = 2000;
constexpr double kBridgeBytesPerUs = 1000;
constexpr double kFlopsPerUs = 50e3;     // of training, all ranks together
constexpr double kGpuFlopsPerUs = 20e6;  // of each rank's GPU
constexpr double kTrainingUs = 10e6;     // model, profile and cost table, at most
constexpr double kLeastTrainingUs = 0.3e6;
constexpr double kProfiledSteps = 20;
constexpr double kCostCalls = 50;        // of all gradients at once
constexpr double kDataBytesPerUs = 300;  // random data and checking, per rank

/// One step of a worker's computation, as fast as the model's arithmetic lets it be.
double computed_us(const TrainingSpec& spec, const PlannedGroup& group) {
  const int workers = std::max(1, workers_of(spec, group.ranks));
  const double flops = spec.batch * facts_of(spec.model, spec.sequence).flops_per_sample();
  const bool on_gpu = backend_facts(group.backend).on_gpu;
  return on_gpu ? flops / kGpuFlopsPerUs : workers * flops / kFlopsPerUs;
}

/// The steps themselves: a budget is trained in full, else the cap ends what the protocol asks for.
double trained_us(const WorkCell& cell, const PlannedGroup& group, const Protocol& protocol) {
  const TrainingSpec& spec = training_spec(cell);
  const double step_us = computed_us(spec, group);
  const double steps = budgeted_worker_steps(spec, std::max(1, workers_of(spec, group.ranks)));
  if (steps > 0) return steps * waited_us(spec, step_us);
  const double sent_us = static_cast<double>(cell.size.count()) / kBridgeBytesPerUs * group.ranks;
  return std::min(1.5 * protocol.cell_time_cap.count(),
                  (protocol.warmup + protocol.iterations) * waited_us(spec, step_us + sent_us));
}

/// Before the first step: the model, its profile, what its messages cost.
double prepared_us(const WorkCell& cell, const PlannedGroup& group) {
  return std::min(kTrainingUs,
                  kLeastTrainingUs + kProfiledSteps * computed_us(training_spec(cell), group) +
                      kCostCalls * static_cast<double>(cell.size.count()) / kBridgeBytesPerUs);
}

double estimated_cell(const WorkCell& cell, const PlannedGroup& group, bool bridge,
                      const Protocol& protocol) {
  const double cap_us = protocol.cell_time_cap.count();
  if (cell.collective == Collective::training) {
    const bool tries = group.ranks > 1 && leaves_a_choice(training_spec(cell));
    return prepared_us(cell, group) + (tries ? kTrialCaps : 0) * cap_us +
           trained_us(cell, group, protocol);
  }
  const double bytes = static_cast<double>(cell.size.count());
  const double call = (bridge ? kBridgeCallUs : kSharedCallUs) * group.ranks +
                      bytes / (bridge ? kBridgeBytesPerUs : kSharedBytesPerUs) * (group.ranks - 1);
  const double sample =
      std::max(call, protocol.batch_target.count()) + work_settings_of(cell.knobs).late.count();
  const double warm_up = std::min(sample * protocol.warmup, std::max(sample, cap_us / 2));
  const double timed =
      std::min(sample * protocol.iterations, std::max(cap_us, sample * protocol.min_iterations));
  return warm_up + timed + 3 * group.ranks * bytes / kDataBytesPerUs;
}

}  // namespace

Micros estimated_launch(const PlannedGroup& group, const EnvironmentProfile& profile,
                        const RunProtocol& protocol) {
  if (group.possible_cells() == 0) return Micros(0);
  const bool bridge = profile.kind == EnvironmentKind::cross_docker;
  double total = profile.kind == EnvironmentKind::bare_metal ? kLaunchUs : kContainerLaunchUs;
  for (const auto& cell : group.cells) {
    if (cell.impossible.empty())
      total += estimated_cell(
          cell.work, group, bridge,
          group.trains() ? protocol.cells : work_settings_of(cell.work.knobs).of(protocol.cells));
  }
  return Micros(total);
}

Micros estimated_run(const Plan& plan, const Experiment& experiment) {
  double block = 0;
  std::set<std::pair<std::string, int>> environments;
  for (const auto& group : plan.groups) {
    if (group.possible_cells() == 0) continue;
    const auto& profile = experiment.profiles.at(group.environment);
    block += estimated_launch(group, profile, experiment.protocol).count();
    if (profile.kind != EnvironmentKind::bare_metal)
      environments.insert({group.environment, group.ranks});
  }
  block += kEnvironmentUs * static_cast<double>(environments.size());
  return Micros(block * first_launches(experiment.protocol));
}

}  // namespace dynamiccl
