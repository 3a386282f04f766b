#pragma once

#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <utility>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/json.hpp"
#include "tuner/action/spaces.hpp"
#include "tuner/agents/task_loop.hpp"
#include "tuner/simulator/arm_model.hpp"
#include "tuner/state/state_from_regime.hpp"
#include "tuner/trigger/trigger.hpp"

namespace dynamiccl {

/// One key tuned in a running job: searched by the bandit, frozen, watched by the trigger, and
/// searched again after an alarm. Known to one rank; the others are sent its arm.
class WatchedKey {
 public:
  WatchedKey(Backend backend, int ranks, Bytes size, const std::string& log_path)
      : agent_(make_agent("bandit", {})), log_(log_path, std::ios::app) {
    SpaceContext context;
    context.backend = backend;
    context.ranks = ranks;
    context.size = size;
    SpaceOptions options;
    // Our own ring is no call of the library's, which is all that is called here.
    for (const std::string& name : known_algorithms(backend, Collective::allreduce))
      if (name != "own_ring") options.algorithms.push_back(name);
    task_.space = std::make_shared<const ActionSpace>(make_space(context, options));
    task_.key = {"here", {.bin = SizeBin::of(size), .group_size = ranks, .backend = backend}};
    task_.prior_log_us = ArmModel(*task_.space, context)
                             .log_times(static_cast<double>(size.count()), nominal_path(1));
    set_task(task_.state, task_.key.task, size, size);
    event("start", fmt::format("{} settings", task_.space->arms().size()));
    choose();
  }

  [[nodiscard]] std::uint32_t arm() const { return static_cast<std::uint32_t>(loop_.choice().arm); }
  [[nodiscard]] ActionSettings setting(std::size_t arm) const {
    return task_.space->setting(task_.space->arms()[arm]);
  }
  /// -1 while the first search runs.
  [[nodiscard]] long calls_since_first_freeze() const {
    return first_freeze_ < 0 ? -1 : calls_ - first_freeze_;
  }

  void add(Micros latency) {
    ++calls_;
    if (frozen_) {
      watch(latency);
      return;
    }
    trial_.push_back(latency.count());
    if (trial_.size() < kCallsPerTrial) return;
    loop_.observe(std::as_const(task_), {true, Micros{median(trial_)}});
    event("tried", fmt::format("{} {:.1f} us", text(), median(trial_)));
    trial_.clear();
    choose();
  }

  void event(const std::string& what, const std::string& text) {
    fmt::print("call {:>7}  {:8} {}\n", calls_, what, text);
    std::fflush(stdout);
    log_ << nlohmann::json{{"call", calls_},
                           {"event", what},
                           {"text", text},
                           {"key", task_.key.task.text()},
                           {"interference", trigger_.state().interference},
                           {"cusum", trigger_.state().cusum_score}}
                .dump()
         << std::endl;
  }

 private:
  static constexpr std::size_t kCallsPerTrial = 40;

  [[nodiscard]] std::string text() const {
    return task_.space->text(task_.space->arms()[loop_.choice().arm]);
  }

  void choose() {
    frozen_ = loop_.finished(task_);
    loop_.next(task_);
    if (!frozen_) return;
    if (first_freeze_ < 0) first_freeze_ = calls_;
    trigger_.restart();
    event("frozen", text());
  }

  void watch(Micros latency) {
    const TriggerState state = trigger_.add(latency);
    if (!state.alarm) return;
    event("alarm", fmt::format("score {:.2f}, interference {:.2f}: the key is open again",
                               state.cusum_score, state.interference));
    loop_.reopen(task_);
    frozen_ = false;
    choose();
  }

  std::unique_ptr<Agent> agent_;
  TaskLoop loop_{*agent_};
  std::ofstream log_;
  Task task_;
  Trigger trigger_;
  std::vector<double> trial_;
  bool frozen_ = false;
  long calls_ = 0;
  long first_freeze_ = -1;
};

}  // namespace dynamiccl
