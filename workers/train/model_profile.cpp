#include "workers/train/model_profile.hpp"

#include <algorithm>
#include <numeric>

#include "core/statistics.hpp"

namespace dynamiccl {
namespace {

constexpr int kProfileSteps = 5;

double median_of(const std::vector<StepTimes>& steps, double StepTimes::*member) {
  std::vector<double> values;
  for (const auto& step : steps) values.push_back(step.*member);
  return values.empty() ? 0 : median(values);
}

/// The first worker's order counts; a server learns from it what there is to sum.
void share_order(Communicator& comm, int servers, TrainingWorker* worker, const Learner* learner,
                 ModelProfile& profile) {
  const bool is_first = comm.rank() == servers;
  std::vector<std::int32_t> head(2, 0);
  std::vector<int> order;
  if (worker != nullptr) order = worker->observe_order();
  if (is_first) head = {static_cast<std::int32_t>(order.size()), learner->stages()};
  comm.broadcast(head.data(), head.size(), DataType::int32, servers);
  const auto count = static_cast<std::size_t>(head[0]);
  std::vector<std::int32_t> table(3 * count, 0);
  if (is_first) {
    const auto& parameters = learner->parameters();
    for (std::size_t i = 0; i < count; ++i) {
      const auto& parameter = parameters[static_cast<std::size_t>(order[i])];
      table[3 * i] = order[i];
      table[3 * i + 1] = static_cast<std::int32_t>(parameter.count);
      table[3 * i + 2] = parameter.stage;
    }
  }
  comm.broadcast(table.data(), table.size(), DataType::int32, servers);
  profile.step.stage_forward_us.assign(static_cast<std::size_t>(head[1]), 0);
  for (std::size_t i = 0; i < count; ++i) {
    profile.order.push_back(table[3 * i]);
    profile.counts.push_back(static_cast<std::size_t>(table[3 * i + 1]));
    profile.step.stage_of_gradient.push_back(table[3 * i + 2]);
    profile.step.gradients.push_back({0, profile.counts.back() * sizeof(float)});
  }
}

}  // namespace

ModelProfile profile_model(Communicator& comm, int servers, TrainingWorker* worker,
                           const Learner* learner) {
  ModelProfile profile;
  share_order(comm, servers, worker, learner, profile);
  if (worker != nullptr) worker->set_order(profile.order);
  StepProfile& shared = profile.step;
  const auto alone = [&] {
    std::vector<StepTimes> steps;
    worker->step_alone(nullptr);
    for (int i = 0; i < kProfileSteps; ++i) steps.push_back(worker->step_alone(&shared));
    return steps;
  };
  std::vector<StepTimes> steps;
  barrier(comm);
  if (worker != nullptr) steps = alone();
  std::vector<double> values{median_of(steps, &StepTimes::forward_us),
                             median_of(steps, &StepTimes::backward_us),
                             median_of(steps, &StepTimes::update_us), 0};
  barrier(comm);
  if (comm.rank() == servers) {
    StepProfile own = shared;
    const auto single = alone();
    shared = own;
    values[3] = median_of(single, &StepTimes::forward_us) +
                median_of(single, &StepTimes::backward_us) +
                median_of(single, &StepTimes::update_us);
  }
  values.insert(values.end(), shared.stage_forward_us.begin(), shared.stage_forward_us.end());
  for (const auto& gradient : shared.gradients) values.push_back(gradient.ready_us);
  values = max_over_ranks(comm, std::move(values));
  shared.forward_us = values[0];
  shared.backward_us = values[1];
  shared.update_us = values[2];
  profile.single_us = values[3];
  profile.compute_us = values[0] + values[1] + values[2];
  auto next = values.begin() + 4;
  for (double& stage : shared.stage_forward_us) stage = *next++;
  double ready = 0;
  for (auto& gradient : shared.gradients) gradient.ready_us = ready = std::max(ready, *next++);
  // Stages were timed in one step; together they are the forward pass.
  const double sum =
      std::accumulate(shared.stage_forward_us.begin(), shared.stage_forward_us.end(), 0.0);
  for (double& stage : shared.stage_forward_us) stage *= sum > 0 ? shared.forward_us / sum : 1;
  return profile;
}

}  // namespace dynamiccl
