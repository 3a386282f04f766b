#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/wire/record.hpp"
#include "train/exchange/call_settings.hpp"
#include "train/step/worker_step.hpp"
#include "train/synchronise/replay.hpp"
#include "workers/communicator.hpp"
#include "workers/measure/core_wait.hpp"

namespace dynamiccl {

/// What makes the workers' gradients equal step by step: our exchange on a thread of its own, or
/// the tensor library's engine. The communicator is the driver's between step() and finish().
class StepDriver {
 public:
  virtual ~StepDriver() = default;
  StepDriver(const StepDriver&) = delete;
  StepDriver& operator=(const StepDriver&) = delete;
  virtual StepTimes step() = 0;
  /// Applies what is still open.
  virtual StepTimes finish() = 0;
  /// Since the last call: microseconds in which communication was busy, nullopt where the engine
  /// does not tell; and what it did. As StepExchange's, which a GPU's steps have only when asked.
  virtual std::optional<double> take_busy_us() = 0;
  virtual void trace_next() {}
  virtual std::vector<Span> take_spans() = 0;
  /// Payload this worker has sent, bytes.
  [[nodiscard]] virtual std::uint64_t sent_bytes() const = 0;
  /// Memory for gradients beyond one copy of them, bytes.
  [[nodiscard]] virtual std::size_t extra_bytes() const = 0;
  /// The worker's weights are at the start again: servers that hold them are notified. Only between
  /// finish() and step(). Ranks: all workers, while servers take them.
  virtual void restarted() {}
  /// What its codec did since the last call, after finish(); nullopt without one.
  virtual std::optional<CodingFigures> take_coding() { return std::nullopt; }
  virtual void describe(TrainingFigures& /*figures*/) const {}
  /// Steps of the next step(): of a round of local ones several.
  [[nodiscard]] virtual int next_steps() const { return 1; }
  /// How often the next step() exchanges all parameters.
  [[nodiscard]] virtual int next_exchanges() const { return 1; }
  /// Workers wait as TrainingSpec::switch_to says from now on. Between finish() and step(). Ranks:
  /// all workers.
  virtual void switch_over() {}
  /// `judge` is called while the worker has the weights that are judged: its own, or a centre.
  /// Between finish() and step().
  virtual void with_judged(const std::function<void()>& judge) { judge(); }
  /// Training is over: the worker's weights become what was trained. After finish().
  virtual void conclude() {}
  /// Since the start, or restarted(); empty where rounds decide nothing.
  [[nodiscard]] virtual RoundLog round_log() const { return {}; }
  /// What all rounds since then decided otherwise than all workers' losses ask for, the same on
  /// every rank; "" where nothing. After finish(). Ranks: all, there is no server.
  [[nodiscard]] virtual std::string broken_rule() { return ""; }
  /// After so many steps, outside of what is timed: what is looked at now and then. Ranks: all
  /// workers.
  virtual void look(TrainingFigures& /*figures*/, int /*steps*/) {}

 protected:
  StepDriver() = default;
};

/// One step's times in `now`; the last one's are taken with what it leaves to be done.
/// @returns us from its start to its end
double timed_step(StepDriver& driving, CoreWait& wait, bool is_last, StepTimes& now);

/// @param settings of the library's calls; nullptr: its own
/// @param engine the joined ranks of the library's engine: ddp alone needs them
std::unique_ptr<StepDriver> make_step_driver(Communicator& comm, const ExchangePlan& plan,
                                             const TrainingSpec& spec, TrainingWorker& worker,
                                             Learner& learner, EngineGroup* engine,
                                             CallSettings* settings = nullptr);

}  // namespace dynamiccl
