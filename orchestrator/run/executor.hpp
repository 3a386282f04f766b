#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "db/store.hpp"
#include "orchestrator/experiment/experiment.hpp"
#include "orchestrator/plan/plan.hpp"
#include "orchestrator/run/console.hpp"
#include "orchestrator/run/launch_runner.hpp"

namespace dynamiccl {

/// What a run came to.
struct RunSummary {
  std::string run_id;
  std::size_t launches = 0;         ///< done in this call
  std::size_t failed_launches = 0;  ///< of them, still failed after all attempts
  std::size_t failed_cells = 0;     ///< (launch, cell) pairs with a wrong or failed result
  int interrupted_by = 0;           ///< signal; 0 = the plan was gone through
  /// Environments this machine has that did not come up: their launches failed, the run is stored
  /// as failed and may be resumed.
  std::vector<std::string> not_prepared;

  [[nodiscard]] bool ok() const {
    return failed_launches == 0 && failed_cells == 0 && interrupted_by == 0 && not_prepared.empty();
  }
};

/// Goes through a plan: blocks of launches in random order, each stored as soon as it ended. One
/// thread.
class Executor {
 public:
  Executor(const Experiment& experiment, const Plan& plan, LaunchSite site, Store& store,
           Console& console);

  /// Begins a new run in the store, or takes `resumed` over and does what it lacks.
  /// @throws Error when the store or the machine fails as a whole, what was stored stays;
  /// Error(input) when `resumed` was planned with other profiles
  RunSummary run(const RunInfo& info, const std::optional<std::string>& resumed);

  /// Every launch gets this run.json instead of one in a new order: the replay of a stored launch.
  void replay(const RunConfig& stored) { replayed_ = stored; }
  /// What a run is found again by when the batch job around it is started anew; "" = nothing.
  void begins_in(const std::string& job) { batch_job_ = job; }
  /// What is done once, when every group has had `kFirstLook` launches and more are to come.
  /// @param look gets the run's id
  void after_first_launches(std::function<void(const std::string&)> look) {
    first_look_ = std::move(look);
  }
  static constexpr int kFirstLook = 2;

 private:
  void refuse_changed_plan(const std::string& run) const;
  void note_impossible_now();
  [[nodiscard]] bool has_launches(const std::string& environment) const;
  void prepare_environments();
  void run_blocks();
  void run_block(int block);
  [[nodiscard]] bool block_is_affordable(double elapsed_s, double block_s);
  [[nodiscard]] std::map<std::string, std::vector<CellMedians>> medians_by_group() const;
  /// Groups whose intervals are as narrow as asked get no further launch.
  void settle_groups();
  void announce_further(int block);
  void store_stopping(const std::string& stopped_by);
  /// All attempts of one group in one block.
  void run_group(const PlannedGroup& group, int block, int position);
  void leave_out(const std::string& environment, const std::string& reason);
  void fail_environment(const std::string& environment, const std::string& reason);
  [[nodiscard]] bool wanted(const PlannedGroup& group, int block) const;
  [[nodiscard]] bool any_wanted(int block) const;
  void look_first();
  [[nodiscard]] std::size_t remaining() const;
  /// After which every launch of the plan is ended.
  [[nodiscard]] std::chrono::seconds longest_launch() const;
  [[nodiscard]] std::string label(const PlannedGroup& group, int block) const;

  const Experiment& experiment_;
  const Plan& plan_;
  LaunchSite site_;
  Store& store_;
  Console& console_;
  RunSummary summary_;
  std::string batch_job_;
  std::function<void(const std::string&)> first_look_;
  std::optional<RunConfig> replayed_;
  std::set<LaunchKey> finished_;
  std::optional<LaunchRunner> runner_;  ///< of the run that is under way
  std::set<std::string> settled_;       ///< groups whose intervals are as narrow as asked
  std::set<std::string> left_out_;      ///< environments that cannot be prepared
};

/// What the store keeps of a plan's groups and cells.
std::vector<GroupInfo> group_rows(const Experiment& experiment, const Plan& plan);
std::vector<CellInfo> cell_rows(const Plan& plan);

}  // namespace dynamiccl
