#include "tuner/nccl/online_learner.hpp"

#include <algorithm>

#include "core/vocabulary/error.hpp"
#include "tuner/export/export.hpp"

namespace dynamiccl {
namespace {

constexpr std::array kCollectives{Collective::broadcast, Collective::reduce, Collective::allgather,
                                  Collective::reduce_scatter, Collective::allreduce};
constexpr std::int64_t kMostAhead = 4096;

}  // namespace

OnlineLearner::OnlineLearner(std::shared_ptr<Region> region, const LearnerOptions& options)
    : leader_(std::move(region)),
      options_(options),
      agent_(make_agent(options.agent, options.agent_options)),
      ahead_(options.ahead) {
  // Only what the plugin can change while the job runs.
  options_.space.scopes = {KnobScope::call};
}

void OnlineLearner::find_tasks() {
  const Region& region = leader_.region();
  for (std::size_t function = 0; function < kCallFunctions; ++function) {
    for (std::size_t bin = 0; bin < kCallBins; ++bin) {
      if (tasks_.contains({function, bin}) ||
          leader_.observe(function, bin).calls < options_.calls_per_trial)
        continue;
      SpaceContext context;
      context.backend = Backend::nccl;
      context.collective = kCollectives[function];
      context.ranks = static_cast<int>(region.ranks());
      context.nodes = static_cast<int>(region.header().nodes);
      context.size = Bytes(std::uint64_t{1} << bin);
      context.nvlink = options_.nvlink;
      context.nccl_plugin = true;
      Learning learning;
      learning.task.key = {"online",
                           {context.collective,
                            {static_cast<int>(bin)},
                            context.ranks,
                            1,
                            Architecture::ring,
                            Backend::nccl}};
      learning.task.space = std::make_shared<ActionSpace>(make_space(context, options_.space));
      learning.task.state.collective = context.collective;
      learning.task.state.effective_size = context.size;
      learning.task.state.group_size = context.ranks;
      learning.task.state.nodes = context.nodes;
      tasks_.emplace(Cell{function, bin}, std::move(learning));
    }
  }
}

bool OnlineLearner::round_measured() {
  bool any = false;
  bool all = true;
  for (const auto& [cell, learning] : tasks_) {
    const std::uint32_t calls = leader_.observe(cell.function, cell.bin).calls;
    // A size that is not called any more holds nothing up: it has no calls at all in this epoch.
    any = any || calls >= options_.calls_per_trial;
    all = all && (calls == 0 || calls >= options_.calls_per_trial);
  }
  return any && all;
}

void OnlineLearner::learn_round() {
  for (auto& [cell, learning] : tasks_) {
    const CellObservation seen = leader_.observe(cell.function, cell.bin);
    if (seen.calls < options_.calls_per_trial) continue;
    learning.last_us = seen.mean.count();
    learning.last_arm = learning.arm;
    if (learning.arm == 0) learning.default_us = learning.last_us;
    if (!agent_->finished(learning.task))
      agent_->learn(learning.task, learning.arm, {true, seen.mean});
  }
  ++rounds_;
}

void OnlineLearner::propose_round() {
  proposed_ = table_;
  for (auto& [cell, learning] : tasks_) {
    learning.proposed = agent_->finished(learning.task) ? agent_->recommend(learning.task)
                                                        : agent_->act(learning.task).arm;
    const ActionSpace& space = *learning.task.space;
    proposed_.cells[cell.function][cell.bin] =
        call_cell(space.setting(space.arms()[learning.proposed]));
  }
  if (proposed_ == table_) {
    for (auto& [cell, learning] : tasks_) learning.arm = learning.proposed;
    return;
  }
  leader_.propose(proposed_, leader_.spread() + ahead_);
  proposing_ = true;
}

bool OnlineLearner::step() {
  const Leader::Progress progress = leader_.poll();
  if (progress == Leader::Progress::ended) return false;
  if (progress != Leader::Progress::free) return true;
  if (proposing_) {
    proposing_ = false;
    if (!leader_.committed()) {
      ++aborted_;
      ahead_ = std::min(2 * ahead_, kMostAhead);
      propose_round();
      return true;
    }
    table_ = proposed_;
    for (auto& [cell, learning] : tasks_) learning.arm = learning.proposed;
    last_calls_ = leader_.furthest_call();
    return true;
  }
  find_tasks();
  if (tasks_.empty() || !round_measured()) return true;
  if (leader_.furthest_call() < last_calls_ + options_.calls_per_trial) return true;
  last_calls_ = leader_.furthest_call();
  learn_round();
  propose_round();
  return true;
}

bool OnlineLearner::finished() const {
  return !tasks_.empty() && !proposing_ &&
         std::all_of(tasks_.begin(), tasks_.end(), [&](const auto& task) {
           return agent_->finished(task.second.task) &&
                  task.second.last_arm == agent_->recommend(task.second.task);
         });
}

std::vector<TableEntry> OnlineLearner::entries() const {
  std::vector<TableEntry> entries;
  for (const auto& [cell, learning] : tasks_) {
    TableEntry entry;
    entry.key = learning.task.key;
    entry.size = entry.key.task.bin.first();
    const ActionSpace& space = *learning.task.space;
    const Action& action = space.arms()[agent_->recommend(learning.task)];
    entry.setting = space.setting(action);
    entry.arm = space.text(action);
    entry.evidence.default_us = learning.default_us;
    entry.evidence.tuned_us = learning.last_us;
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace dynamiccl
