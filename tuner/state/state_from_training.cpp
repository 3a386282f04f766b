#include "tuner/state/state_from_training.hpp"

namespace dynamiccl {
namespace {

Schedule schedule_of(const TrainingSpec& spec) {
  const TrainingMethodRow& row = method_row(spec.method);
  // One message of all gradients goes when the last is there, whatever the order.
  if (row.grouping == MessageGrouping::together) return Schedule::none;
  if (row.grouping == MessageGrouping::merged || row.grouping == MessageGrouping::buckets)
    return Schedule::mg_wfbp;
  if (row.grouping == MessageGrouping::parts || row.order == SendOrder::by_urgency)
    return Schedule::partitioned;
  return row.order == SendOrder::as_ready ? Schedule::wfbp : Schedule::none;
}

}  // namespace

void set_training(State& state, const TrainingSpec& spec, int workers) {
  const ModelFacts facts = facts_of(spec.model, spec.sequence);
  state.model_intensity = facts.intensity();
  state.parameters = static_cast<double>(facts.parameters);
  state.local_batch = spec.batch;
  state.c2c_ratio = c2c_predicted(spec, workers);
  // What a tuner sets is the library's all-reduce of each step: anything else is refused before.
  state.architecture = SumArchitecture::allreduce;
  state.sync = SyncMode::bsp;
  state.local_steps = 0;
  state.compression = Compression::none;
  state.wire_fraction = 1;
  state.schedule = schedule_of(spec);
  // Every worker has the whole model, no stage of it, and a rank that is lost ends the job.
  state.parallelism = ParallelismMode::dp;
  state.fault_tolerance = FaultTolerance::none;
  state.pipeline_template = false;
  state.stage = 0;
  state.stage_role = StageRole::none;
}

}  // namespace dynamiccl
