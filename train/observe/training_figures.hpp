#pragma once

#include <optional>
#include <vector>

#include "core/wire/record.hpp"
#include "train/observe/call_times.hpp"
#include "train/observe/link_cost.hpp"
#include "train/observe/model_profile.hpp"
#include "train/observe/step_energy.hpp"
#include "train/plan/trial.hpp"

namespace dynamiccl {

/// One step of a worker or a server among a cell's samples.
/// @param collective_us nullopt where nobody saw it
void add_step(SampleArrays& samples, double start_us, double total_us,
              std::optional<double> collective_us, double compute_us,
              std::optional<double> waited_us = std::nullopt);

/// Collects what the steps of a cell leave besides their times.
class FigureCollector {
 public:
  /// @param device the worker's GPU, whose energy is counted; nullptr: none
  FigureCollector(const ExchangePlan& plan, const ModelProfile& profile,
                  const Device* device = nullptr)
      : plan_(plan), profile_(profile), energy_(device) {}
  /// @param total_us of the step, by the same clock
  /// @param busy_us in which its communication was busy, where that is known
  void add(const StepTimes& times, double total_us, bool measured,
           std::optional<double> busy_us = std::nullopt);
  /// What communication did in a step, which is the last one's trace until another comes.
  /// @param counts as a measured step, of which every call is seen
  /// @param follows as CallTimes::add()
  void add_calls(double start_us, std::vector<Span> spans, bool counts, bool follows = true);
  /// Calls of measured steps of which nothing was kept.
  void leave_out_calls(std::size_t calls) { calls_.leave_out(calls); }
  /// Measured steps run within its over().
  [[nodiscard]] StepEnergy& energy() { return energy_; }
  /// The weights are at the start again: the loss curve begins here.
  void restart() { losses_.clear(); }
  /// The last step as Chrome trace events (chrome://tracing, Perfetto): computation, and a row for
  /// each lane of communication. It says what was exposed of communication where no step's busy
  /// time is known, as on a GPU's lanes.
  void add_trace(const std::vector<Span>& computing, int rank);
  void fill(TrainingFigures& figures, double wire_bytes) const;
  /// The first step, counted from 1, whose loss is no finite number; nullopt where all are.
  [[nodiscard]] std::optional<std::size_t> first_without_loss() const;

 private:
  const ExchangePlan& plan_;
  const ModelProfile& profile_;
  std::vector<StepTimes> measured_;
  // Of each measured step by its own figures: who else uses the machine lengthens what is compared
  // alike, or strikes few of the steps.
  std::vector<double> accounted_;  ///< its parts over its time
  std::vector<double> exposed_;    ///< what it exposed over what its communication was busy
  std::vector<double> losses_;
  StepEnergy energy_;
  CallTimes calls_;
  std::vector<Span> last_spans_;
  nlohmann::json trace_ = nlohmann::json::array();
};

/// The plan and the figures behind the prediction, for the record's details.
void describe(TrainingFigures& figures, const ExchangePlan& plan, const LinkCost& link);
/// What was tried before one of the plans was taken.
void describe(TrainingFigures& figures, const TrialResult& trial,
              const std::vector<ExchangePlan>& plans);
/// What a message took on each path that was tried.
void describe(TrainingFigures& figures, const std::vector<TriedPath>& tried);
/// What a codec did in the measured steps, and what its messages are next to plain ones.
/// @param level whose messages these are: the key in the details
void describe(TrainingFigures& figures, const ExchangePlan& plan, const CodingFigures& coding,
              const char* level);
/// What the predicted step is made of.
void describe(TrainingFigures& figures, const StepPrediction& predicted);
/// Memory that the method holds besides weights, one copy of the gradients and momentum.
/// @param unit bytes of what it is counted in: all gradients, or a server's shard
/// @param limit bytes that it may hold: one copy; with N workers N + 1 times the shard; both where
/// a worker is a server too
void describe_memory(TrainingFigures& figures, std::size_t unit, std::size_t held,
                     std::size_t limit);

}  // namespace dynamiccl
