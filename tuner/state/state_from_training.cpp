#include "tuner/state/state_from_training.hpp"

namespace dynamiccl {
namespace {

std::optional<SyncMode> sync_of(const TrainingSpec& spec) {
  if (method_row(spec.method).sums == SumPlace::neighbours) return SyncMode::decentralised;
  switch (spec.synchronisation) {
    case Synchronisation::bsp:
      return SyncMode::bsp;
    case Synchronisation::local:
      return spec.shares == DataShares::equal ? SyncMode::local_sgd : SyncMode::fedavg;
    case Synchronisation::post_local:
      return SyncMode::local_sgd;
    case Synchronisation::ssp:
      return SyncMode::ssp;
    case Synchronisation::asp:
      return SyncMode::asp;
    case Synchronisation::staggered:
    case Synchronisation::backup:
      return std::nullopt;  // none of the modes that the surveys list
  }
  return std::nullopt;
}

Schedule schedule_of(const TrainingSpec& spec) {
  const TrainingMethodRow& row = method_row(spec.method);
  if (row.grouping == MessageGrouping::merged || row.grouping == MessageGrouping::buckets)
    return Schedule::mg_wfbp;
  if (row.grouping == MessageGrouping::parts || row.order == SendOrder::by_urgency)
    return Schedule::partitioned;
  return row.order == SendOrder::as_ready ? Schedule::wfbp : Schedule::none;
}

SumArchitecture architecture_of_sums(const TrainingSpec& spec) {
  switch (method_row(spec.method).sums) {
    case SumPlace::server:
      return SumArchitecture::ps;
    case SumPlace::neighbours:
      return SumArchitecture::gossip;
    case SumPlace::all_reduce:
      return SumArchitecture::allreduce;
  }
  return SumArchitecture::allreduce;
}

}  // namespace

void set_training(State& state, const TrainingSpec& spec, int workers) {
  const ModelFacts facts = facts_of(spec.model, spec.sequence);
  state.architecture = architecture_of_sums(spec);
  state.model_intensity = facts.intensity();
  state.parameters = static_cast<double>(facts.parameters);
  state.local_batch = spec.batch;
  state.c2c_ratio = c2c_predicted(spec, workers);
  state.sync = sync_of(spec);
  const bool averages = has_local_steps(spec.synchronisation);
  state.local_steps = averages ? spec.local_steps : 0;
  if (spec.packing == Packing::none) {
    state.compression = Compression::none;
    state.wire_fraction = 1;
  }
  state.schedule = schedule_of(spec);
  // Every worker has the whole model, no stage of it, and a rank that is lost ends the job.
  state.parallelism = ParallelismMode::dp;
  state.fault_tolerance = FaultTolerance::none;
  state.pipeline_template = false;
  state.stage = 0;
  state.stage_role = StageRole::none;
}

}  // namespace dynamiccl
