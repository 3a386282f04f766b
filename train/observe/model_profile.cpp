#include "train/observe/model_profile.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/statistics/statistics.hpp"
#include "workers/measure/peak_memory.hpp"

namespace dynamiccl {
namespace {

constexpr double kProfileUs = 2e6;
constexpr double kProfileOnGpuUs = 0.5e6;  // nobody else computes there
constexpr double kLeastSteps = 5;
constexpr double kMostSteps = 25;

/// The first worker's order counts; a server learns from it what there is to sum.
void share_order(Communicator& comm, int servers, TrainingWorker* worker, const Learner* learner,
                 ModelProfile& profile) {
  const bool is_first = comm.rank() == servers;
  std::vector<std::int32_t> head(2, 0);
  std::vector<int> order;
  if (worker != nullptr) order = worker->observe_order();
  if (is_first) head = {static_cast<std::int32_t>(order.size()), learner->stages()};
  broadcast_host(comm, head.data(), head.size() * sizeof(head[0]), servers);
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
  broadcast_host(comm, table.data(), table.size() * sizeof(table[0]), servers);
  profile.step.stage_forward_us.assign(static_cast<std::size_t>(head[1]), 0);
  for (std::size_t i = 0; i < count; ++i) {
    profile.order.push_back(table[3 * i]);
    profile.counts.push_back(static_cast<std::size_t>(table[3 * i + 1]));
    profile.step.stage_of_gradient.push_back(table[3 * i + 2]);
    profile.step.gradients.push_back({0, profile.counts.back() * sizeof(float)});
  }
}

/// Some steps of this worker without communication, each with its own figures.
struct AloneSteps {
  std::vector<StepProfile> steps;

  [[nodiscard]] double typical(const std::function<double(const StepProfile&)>& value) const {
    std::vector<double> values;
    for (const auto& step : steps) values.push_back(value(step));
    return values.empty() ? 0 : median(values);
  }
};

AloneSteps steps_alone(TrainingWorker& worker, const StepProfile& form, int count) {
  AloneSteps alone;
  // To see when a gradient is ready a GPU is waited for, which makes the pass longer: once.
  const bool on_gpu = worker.memory().on_gpu();
  StepProfile seen = form;
  const double seen_us = on_gpu ? worker.step_alone(&seen).backward_us : 0;
  for (int i = 0; i < count; ++i) {
    StepProfile step = seen;
    const StepTimes times = worker.step_alone(on_gpu ? nullptr : &step);
    if (seen_us > 0)
      for (auto& gradient : step.gradients) gradient.ready_us *= times.backward_us / seen_us;
    step.forward_us = times.forward_us;
    step.backward_us = times.backward_us;
    step.update_us = times.update_us;
    alone.steps.push_back(std::move(step));
  }
  return alone;
}

double total_of(const StepProfile& step) {
  return step.forward_us + step.backward_us + step.update_us;
}

/// How many steps tell enough: a short one's median needs more of them. The same on every rank.
int steps_wanted(Communicator& comm, TrainingWorker* worker, const StepProfile& form) {
  double step_us = 0;
  if (worker != nullptr) {
    worker->step_alone(nullptr);
    step_us = total_of(steps_alone(*worker, form, 1).steps.front());
  }
  step_us = std::max(max_over_ranks(comm, {step_us})[0], 1.0);
  const double enough_us = comm.works_on_gpu() ? kProfileOnGpuUs : kProfileUs;
  return static_cast<int>(std::clamp(enough_us / step_us, kLeastSteps, kMostSteps));
}

/// Median figures of this worker as a flat list; zeros on a server.
std::vector<double> figures_of(const AloneSteps& alone, const StepProfile& form) {
  std::vector<double> values{alone.typical([](const StepProfile& s) { return s.forward_us; }),
                             alone.typical([](const StepProfile& s) { return s.backward_us; }),
                             alone.typical([](const StepProfile& s) { return s.update_us; })};
  for (std::size_t i = 0; i < form.stage_forward_us.size(); ++i)
    values.push_back(alone.typical([i](const StepProfile& s) { return s.stage_forward_us[i]; }));
  for (std::size_t i = 0; i < form.gradients.size(); ++i)
    values.push_back(alone.typical([i](const StepProfile& s) { return s.gradients[i].ready_us; }));
  return values;
}

/// Makes the parts add up to the whole: `step_us` is what a step of the slowest worker takes.
void fit(StepProfile& profile, const std::vector<double>& values, double step_us) {
  profile.forward_us = values[0];
  profile.backward_us = values[1];
  profile.update_us = values[2];
  const double scale = total_of(profile) > 0 ? step_us / total_of(profile) : 1;
  auto next = values.begin() + 3;
  for (double& stage : profile.stage_forward_us) stage = *next++;
  const double stages =
      std::accumulate(profile.stage_forward_us.begin(), profile.stage_forward_us.end(), 0.0);
  for (double& stage : profile.stage_forward_us)
    stage *= stages > 0 ? scale * profile.forward_us / stages : 1;
  double ready = 0;
  for (auto& gradient : profile.gradients)
    gradient.ready_us = ready = std::max(ready, std::min(*next++, profile.backward_us) * scale);
  profile.forward_us *= scale;
  profile.backward_us *= scale;
  profile.update_us *= scale;
}

}  // namespace

ModelProfile profile_model(Communicator& comm, int servers, TrainingWorker* worker,
                           const Learner* learner) {
  ModelProfile profile;
  share_order(comm, servers, worker, learner, profile);
  if (worker != nullptr) worker->set_order(profile.order);
  const StepProfile form = profile.step;
  const int count = steps_wanted(comm, worker, form);
  AloneSteps together;
  const bool has_peak = restart_peak_memory();
  barrier(comm);
  if (worker != nullptr) together = steps_alone(*worker, form, count);
  if (has_peak) profile.peak_bytes = peak_memory_bytes();
  // Workers wait for each other in every step, so the slowest of a step counts, not of the median.
  std::vector<double> totals(static_cast<std::size_t>(count), 0);
  for (std::size_t i = 0; i < together.steps.size(); ++i) totals[i] = total_of(together.steps[i]);
  profile.compute_us = median(max_over_ranks(comm, std::move(totals)));
  fit(profile.step, max_over_ranks(comm, figures_of(together, form)), profile.compute_us);
  barrier(comm);
  double single_us = 0;
  if (comm.rank() == servers) single_us = steps_alone(*worker, form, count).typical(total_of);
  profile.single_us = max_over_ranks(comm, {single_us})[0];
  return profile;
}

}  // namespace dynamiccl
