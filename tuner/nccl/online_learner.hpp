#pragma once

#include <map>
#include <memory>
#include <optional>

#include "tuner/action/spaces.hpp"
#include "tuner/agents/agent.hpp"
#include "tuner/control/leader.hpp"
#include "tuner/table/table.hpp"

namespace dynamiccl {

struct LearnerOptions {
  std::string agent = "bandit";
  AgentOptions agent_options{};
  SpaceOptions space{};
  bool nvlink = false;
  /// Calls of a size under one setting before it is judged.
  std::uint32_t calls_per_trial = 20;
  /// Calls between the furthest rank and a boundary at first; doubled when a proposal fails.
  std::int64_t ahead = 16;
};

/// Learns one communicator's per-call settings while its job runs: every size with traffic is a
/// task of its own; each round proposes one table with an arm per task, and judges it by what the
/// plugin's profiler half has summed up. Never holds the job up.
class OnlineLearner {
 public:
  /// @throws Error(environment) when another leader holds the region
  OnlineLearner(std::shared_ptr<Region> region, const LearnerOptions& options);
  /// One look at the ranks; cheap, call it every few milliseconds.
  /// @returns false when the job's communicator is gone
  bool step();

  [[nodiscard]] bool finished() const;  ///< every task seen so far has its final setting
  [[nodiscard]] int rounds() const { return rounds_; }
  [[nodiscard]] int aborted() const { return aborted_; }
  [[nodiscard]] const CallTable& table() const { return table_; }  ///< last committed
  [[nodiscard]] std::size_t tasks() const { return tasks_.size(); }
  /// Final settings with what was measured, as rows of a configuration table.
  [[nodiscard]] std::vector<TableEntry> entries() const;

 private:
  struct Cell {
    std::size_t function = 0;
    std::size_t bin = 0;
    auto operator<=>(const Cell&) const = default;
  };
  struct Learning {
    Task task;
    std::size_t arm = 0;       ///< that the table in use has
    std::size_t proposed = 0;  ///< that the next one has
    double default_us = 0;
    double last_us = 0;
    std::optional<std::size_t> last_arm{};  ///< that `last_us` is of
  };

  void find_tasks();
  [[nodiscard]] bool round_measured();
  void learn_round();
  void propose_round();

  Leader leader_;
  LearnerOptions options_;
  std::unique_ptr<Agent> agent_;
  std::map<Cell, Learning> tasks_;
  CallTable table_{};
  CallTable proposed_{};
  std::int64_t ahead_;
  bool proposing_ = false;
  std::int64_t last_calls_ = -1;
  int rounds_ = 0;
  int aborted_ = 0;
};

}  // namespace dynamiccl
