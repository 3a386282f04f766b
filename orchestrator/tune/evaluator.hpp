#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "db/measurement_statistics.hpp"
#include "orchestrator/run/executor.hpp"
#include "orchestrator/tune/tune_plan.hpp"

namespace dynamiccl {

/// A training step without communication, as the slowest of a launch's ranks computes it; 0 where
/// the cell trained nothing.
Micros computing_time(const std::vector<RankCell>& cell);

/// Measures arms with the ordinary worker: all arms of a group that share their launch settings in
/// one launch, in random order. Every launch is stored as it ended, in groups of its own that are
/// added to the run's plan. One thread.
class LaunchEvaluator {
 public:
  /// The run must have begun. All references must outlive the evaluator.
  LaunchEvaluator(const Experiment& experiment, const TunePlan& plan, LaunchSite site, Store& store,
                  Console& console, const std::string& run_id);

  /// One answer per ask; none when interrupted by a signal.
  std::vector<Measured> measure(const std::vector<Ask>& asks);

  /// What a training task's step may take before communication limits it, from the launches so far:
  /// the step without communication (C2C: T_comm / T_comp = 1), per unit of work as its times are;
  /// with a target accuracy as many of them as plain SGD needed.
  /// 0 for other tasks, and before anything was measured.
  [[nodiscard]] Micros allowed_time(std::size_t task) const;

  /// Of the run, visible to the ranks of every environment under this path.
  [[nodiscard]] const std::string& run_folder() const { return run_folder_; }

  /// Seconds of so many launches that measure so many cells in all, foretold: by the mean over the
  /// plan's cells.
  [[nodiscard]] double estimated_s(std::size_t launches, std::size_t measurements) const;
  /// How many measurements are still to come, at most: what progress and ETA go by.
  void expect(std::size_t measurements);

  [[nodiscard]] std::size_t launches() const { return launches_; }
  [[nodiscard]] std::size_t failed_launches() const { return failed_; }
  [[nodiscard]] int interrupted_by() const { return interrupted_by_; }
  /// Regimes seen, by id: name and Regime::json.
  [[nodiscard]] const std::map<std::string, std::pair<std::string, nlohmann::json>>& regimes()
      const {
    return regimes_;
  }

 private:
  GroupLaunch launch(const PlannedGroup& group);
  [[nodiscard]] std::string progress() const;

  const Experiment& experiment_;
  const TunePlan& plan_;
  Store& store_;
  Console& console_;
  std::string run_id_;
  std::string run_folder_;
  LaunchRunner runner_;
  std::size_t expected_ = 0;  ///< measurements, at most; 0 = nobody knows
  std::size_t measured_ = 0;
  std::chrono::steady_clock::time_point began_{};
  std::set<std::string> warned_;  ///< environments that are not ready
  std::map<std::string, std::pair<std::string, nlohmann::json>> regimes_;
  std::map<std::size_t, std::vector<double>> computing_us_;  ///< by task
  int round_ = 0;
  std::size_t launches_ = 0;
  std::size_t failed_ = 0;
  int interrupted_by_ = 0;
};

}  // namespace dynamiccl
