#include "train/oracle/training_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/error.hpp"
#include "train/exchange/servers.hpp"
#include "train/oracle/codec_replay.hpp"
#include "train/oracle/round_replay.hpp"
#include "train/synchronise/lazy_gradients.hpp"

namespace dynamiccl {
namespace {

/// How many of this rank's weights are other bits than the first worker's. Ranks: all.
/// @param own empty on servers
std::uint64_t unlike_first(Communicator& comm, int first_worker, std::size_t count,
                           const std::vector<float>& own) {
  std::vector<float> first(count);
  if (comm.rank() == first_worker) first = own;
  broadcast_host(comm, first.data(), first.size() * sizeof(float), first_worker);
  return unlike_bits(own, first);
}

}  // namespace

std::uint64_t unlike_bits(const std::vector<float>& own, const std::vector<float>& other) {
  std::uint64_t unlike = 0;
  for (std::size_t i = 0; i < own.size(); ++i)
    unlike +=
        std::bit_cast<std::uint32_t>(own[i]) == std::bit_cast<std::uint32_t>(other[i]) ? 0 : 1;
  return unlike;
}

double oracle_tolerance(bool on_gpu, int round_steps) {
  constexpr int kFewSteps = 10;
  return on_gpu ? kOracleTolerance * std::max(kFewSteps, round_steps) : kOracleTolerance;
}

void fail_check(CellRecord& record, std::string reason) {
  if (record.status == CellStatus::failed) return;
  record.status = CellStatus::failed;
  record.reason = std::move(reason);
}

void note_unlike(Communicator& comm, std::uint64_t checked, std::uint64_t unlike,
                 const std::string& what, CellRecord& record) {
  record.checked += checked;
  record.wrong += unlike;
  if (const double all = sum_over_ranks(comm, {static_cast<double>(unlike)})[0]; all > 0)
    fail_check(record, fmt::format("{:.0f} weights {}", all, what));
}

namespace {

constexpr const char* kAlike = "are not the same bits on all workers";
constexpr const char* kDiverged =
    "training diverged: {}; take a smaller learning_rate, rate_warmup or another codec";

/// What weights are next to those that they should be.
struct Difference {
  double largest = 0;
  double wrong = 0;      ///< weights
  double boundless = 0;  ///< weights that are no numbers on either side

  /// @param scale of the tolerance: what the weight is relative to
  void add(double trained, double wanted, double scale, double tolerance) {
    if (!std::isfinite(trained) && !std::isfinite(wanted)) {
      boundless += 1;
      return;
    }
    const double one = std::abs(trained - wanted) / scale;
    largest = std::isfinite(one) ? std::max(largest, one) : 1e30;
    wrong += one <= tolerance ? 0 : 1;
  }

  /// Ranks: all. @param what of the words that a failed cell says, with the oracle's name
  void note(Communicator& comm, const char* rounds, int count, const char* oracle, double tolerance,
            CellRecord& record) const {
    record.wrong += static_cast<std::uint64_t>(wrong);
    const auto shared = max_over_ranks(comm, {largest, wrong, boundless});
    record.training->max_difference = shared[0];
    if (shared[1] > 0)
      fail_check(
          record,
          fmt::format(
              "in {} {} {:.0f} values of weights differ from {} by more than {:.3g}, at most "
              "by {:.3g}",
              count, rounds, shared[1], oracle, tolerance, shared[0]));
    if (shared[2] > 0)
      fail_check(
          record,
          fmt::format(kDiverged, fmt::format("{:.0f} weights are no finite numbers after {} {}, "
                                             "in {} either",
                                             shared[2], count, rounds, oracle)));
  }
};

}  // namespace

void note_divergence(CellRecord& record, std::optional<std::size_t> without_loss,
                     const TrainingWorker& worker) {
  if (without_loss)
    return fail_check(
        record, fmt::format(kDiverged,
                            fmt::format("the loss of step {} is no finite number", *without_loss)));
  const auto weights = worker.weights();
  const auto bad = std::count_if(weights.begin(), weights.end(),
                                 [](float weight) { return !std::isfinite(weight); });
  if (bad > 0)
    fail_check(record, fmt::format(kDiverged, fmt::format("{} weights are no finite numbers after "
                                                          "the last step",
                                                          bad)));
}

void check_coding(CellRecord& record, const ExchangePlan& plan, const CodingFigures& coding) {
  if (coding.boundless > 0)
    fail_check(record, fmt::format(kDiverged,
                                   fmt::format("{} values that {} keeps back are no finite numbers",
                                               coding.boundless, name_of(plan.codec.codec))));
  if (!coding.by_formula || coding.message_bytes == coding.formula_bytes) return;
  fail_check(record, fmt::format("{} gave {} bytes to the library in {} steps, the formula has {}",
                                 name_of(plan.codec.codec), coding.message_bytes, coding.steps,
                                 coding.formula_bytes));
}

void compare_weights(Communicator& comm, const char* oracle, int steps,
                     const std::vector<float>& trained, const std::vector<float>& expected,
                     CellRecord& record, double tolerance) {
  Difference difference;
  for (std::size_t i = 0; i < expected.size(); ++i)
    difference.add(trained[i], expected[i], std::max(1.0, std::abs(double{expected[i]})),
                   tolerance);
  record.checked += expected.size();
  difference.note(comm, "rounds", steps, oracle, tolerance, record);
}

Outliving<StepServer> make_step_server(Communicator& comm, const ExchangePlan& plan,
                                       const TrainingSpec& spec, Micros silence) {
  if (spec.synchronisation == Synchronisation::lag) return make_lazy_server(comm, plan, silence);
  return make_gradient_server(comm, plan);
}

namespace {

/// What a worker has after each of so many rounds of each way of waiting, and what it is to have.
struct CheckedRounds {
  std::vector<float> trained;
  std::vector<float> expected;
  std::vector<float> shared;  ///< of what it has at the end, all workers have the same bits
  std::string broken;         ///< what it decided otherwise than it should have
};

int legs_of(const TrainingSpec& spec) { return spec.switch_to ? 2 : 1; }

/// What all workers had after a round. Ranks: all.
/// @param own what this one had after each; empty on servers
std::vector<WorkerState> gathered(Communicator& comm, const ExchangePlan& plan,
                                  const std::vector<WorkerState>& own, std::size_t round) {
  std::vector<WorkerState> all;
  for (int rank = plan.first_worker(); rank < comm.size(); ++rank) {
    WorkerState state;
    if (comm.rank() == rank) state = own[round];
    state.weights.resize(plan.elements());
    broadcast_host(comm, state.weights.data(), state.weights.size() * sizeof(float), rank);
    if (!plan.server_sgd) {
      state.velocity.resize(plan.elements());
      broadcast_host(comm, state.velocity.data(), state.velocity.size() * sizeof(float), rank);
    }
    all.push_back(std::move(state));
  }
  return all;
}

CheckedRounds rounds_of_worker(Communicator& comm, const ExchangePlan& plan,
                               const TrainingSpec& spec, TrainingWorker& worker,
                               const std::function<std::unique_ptr<StepDriver>()>& driver) {
  CheckedRounds checked;
  RoundLog log;
  std::vector<WorkerState> own;
  {
    const auto driving = driver();
    for (int leg = 0; leg < legs_of(spec); ++leg) {
      if (leg > 0) driving->switch_over();
      for (int i = 0; i < spec.oracle; ++i) {
        driving->step();
        driving->finish();
        own.push_back({worker.host_weights(), worker.host_velocity()});
      }
    }
    log = driving->round_log();
    driving->conclude();
    checked.shared = worker.host_weights();
  }
  worker.reset();
  const StatesAfter after = [&](std::size_t round) { return gathered(comm, plan, own, round); };
  const bool lazy = spec.synchronisation == Synchronisation::lag;
  ReplayedRounds replayed =
      lazy ? replay_lazily(spec, worker, spec.oracle, after)
           : replay_rounds(plan, spec, worker, spec.oracle, log, after, checked.broken);
  checked.expected = std::move(replayed.own);
  for (WorkerState& state : own) {
    checked.trained.insert(checked.trained.end(), state.weights.begin(), state.weights.end());
    state = {};
  }
  if (!replayed.centre.empty()) {
    checked.trained.insert(checked.trained.end(), checked.shared.begin(), checked.shared.end());
    checked.expected.insert(checked.expected.end(), replayed.centre.begin(), replayed.centre.end());
  }
  if (lazy && replayed.log[static_cast<std::size_t>(worker.number())] != log)
    checked.broken = "a gradient was sent that was near the last one, or one that was not was kept";
  worker.reset();
  return checked;
}

/// Local steps whose roundings add up in a replay: those of one round, as each is replayed from the
/// weights and momentum that the workers had before it; of all rounds where it keeps more than that
/// (a centre, the way from one average to the next, what decoders know, a server's momentum).
int steps_that_add_up(const ExchangePlan& plan, const TrainingSpec& spec) {
  const bool keeps_more = spec.slow_momentum > 0 || has_centre(spec.synchronisation) ||
                          (spec.switch_to && has_centre(*spec.switch_to)) ||
                          plan.codec.codec != Codec::none || plan.server_sgd;
  return spec.local_steps * (keeps_more ? spec.oracle * legs_of(spec) : 1);
}

}  // namespace

void check_rounds(Communicator& comm, const ExchangePlan& plan, const TrainingSpec& spec,
                  TrainingWorker* worker, Micros silence,
                  const std::function<std::unique_ptr<StepDriver>()>& driver, CellRecord& record) {
  CheckedRounds checked;
  if (worker == nullptr) {
    make_step_server(comm, plan, spec, silence)->serve(spec.oracle);
    const auto rounds =
        static_cast<std::size_t>(legs_of(spec)) * static_cast<std::size_t>(spec.oracle);
    for (std::size_t round = 0; round + 1 < rounds; ++round) gathered(comm, plan, {}, round);
  } else {
    checked = rounds_of_worker(comm, plan, spec, *worker, driver);
  }
  compare_weights(comm, "the workers' replay in one process", spec.oracle, checked.trained,
                  checked.expected, record,
                  oracle_tolerance(comm.works_on_gpu(), steps_that_add_up(plan, spec)));
  const double broken = checked.broken.empty() ? 0 : 1;
  record.wrong += static_cast<std::uint64_t>(broken);
  if (sum_over_ranks(comm, {broken})[0] > 0)
    fail_check(record, fmt::format("synchronisation = \"{}\" was not kept: {}",
                                   name_of(spec.synchronisation),
                                   broken > 0 ? checked.broken : "another worker says how"));
  if (agreement_of(spec.method, spec.synchronisation) == WeightAgreement::never) return;
  note_unlike(comm, checked.shared.size(),
              unlike_first(comm, plan.first_worker(), plan.elements(), checked.shared),
              fmt::format("{} after {} rounds", kAlike, spec.oracle), record);
}

namespace {

/// What a worker has after each of so many rounds, and what it is to have by one round of the
/// replay from what it had before.
struct CodedRounds {
  std::vector<float> trained;
  std::vector<float> expected;
  double tolerance = kOracleTolerance;
};

CodedRounds coded_rounds(const ExchangePlan& plan, const TrainingSpec& spec, TrainingWorker& worker,
                         const std::function<std::unique_ptr<StepDriver>()>& driver) {
  std::vector<std::vector<float>> weights{worker.host_weights()};
  std::vector<std::vector<float>> velocities{std::vector<float>(plan.elements(), 0.0F)};
  {
    const auto driving = driver();
    for (int i = 0; i < spec.oracle; ++i) {
      driving->step();
      driving->finish();
      weights.push_back(worker.host_weights());
      velocities.push_back(worker.host_velocity());
    }
  }
  worker.reset();
  CodecReplay replay(plan, spec, worker);
  CodedRounds rounds;
  for (std::size_t i = 0; i + 1 < weights.size(); ++i) {
    worker.take_host_weights(weights[i].data());
    // Where servers are optimizers, momentum is theirs, and the replay's own.
    if (!plan.server_sgd) worker.take_host_velocity(velocities[i].data());
    replay.round();
    rounds.tolerance = std::max(rounds.tolerance, kOracleTolerance + replay.order_slack());
    const auto after = worker.host_weights();
    rounds.expected.insert(rounds.expected.end(), after.begin(), after.end());
    rounds.trained.insert(rounds.trained.end(), weights[i + 1].begin(), weights[i + 1].end());
  }
  worker.reset();
  return rounds;
}

}  // namespace

void check_coded(Communicator& comm, const ExchangePlan& plan, const TrainingSpec& spec,
                 TrainingWorker* worker, const std::function<std::unique_ptr<StepDriver>()>& driver,
                 CellRecord& record) {
  const int steps = spec.oracle;
  CodedRounds rounds;
  if (worker == nullptr) {
    const auto server = make_gradient_server(comm, plan);
    server->take_weights();
    server->serve(steps);
  } else {
    rounds = coded_rounds(plan, spec, *worker, driver);
  }
  const auto& [trained, expected, tolerance] = rounds;
  compare_weights(comm, "the workers' replay in one process", steps, trained, expected, record,
                  tolerance);
  const std::size_t all = plan.elements() * static_cast<std::size_t>(steps);
  note_unlike(comm, trained.size(), unlike_first(comm, plan.first_worker(), all, trained),
              fmt::format("of {} steps {}", steps, kAlike), record);
}

void note_digest(TrainingWorker& worker, CellRecord& record) {
  const auto own = worker.weights();
  record.training->parameters_sha256 = sha256_hex(
      std::string_view(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(float)));
}

namespace {

/// A worker's weights before each of so many steps, and after the last.
std::vector<std::vector<float>> weights_of_steps(
    TrainingWorker& worker, int steps, const std::function<std::unique_ptr<StepDriver>()>& driver) {
  std::vector<std::vector<float>> weights;
  const auto driving = driver();
  {
    const auto keeping = worker.keep_weights(weights);
    for (int i = 0; i < steps; ++i) driving->step();
  }
  driving->finish();
  weights.push_back(worker.weights());
  // Of steps that kept nothing, nothing would be compared.
  DYN_ASSERT(weights.size() == static_cast<std::size_t>(steps) + 1,
             "each step of a check keeps the weights that it begins with");
  return weights;
}

/// Each step is done anew by one process from the weights that this worker had before it: a last
/// bit, of sums in another order, is not carried over a kink of the model into another gradient.
/// Momentum is the process' own, as servers may keep it.
Difference replayed_steps(TrainingWorker& worker, const std::vector<std::vector<float>>& weights,
                          double tolerance) {
  Difference difference;
  worker.reset();
  for (std::size_t step = 0; step + 1 < weights.size(); ++step) {
    if (step > 0) worker.restore(weights[step]);
    worker.step_of_all();
    const auto expected = worker.weights();
    const auto& trained = weights[step + 1];
    for (std::size_t i = 0; i < trained.size(); ++i)
      difference.add(trained[i], expected[i], 1, tolerance);
  }
  worker.reset();
  return difference;
}

}  // namespace

void check_oracle(Communicator& comm, const ExchangePlan& plan, int steps, TrainingWorker* worker,
                  const std::function<std::unique_ptr<StepDriver>()>& driver, CellRecord& record) {
  const double tolerance = oracle_tolerance(comm.works_on_gpu(), 1);
  std::vector<std::vector<float>> weights{{}};
  if (worker == nullptr) {
    const auto server = make_gradient_server(comm, plan);
    server->take_weights();
    server->serve(steps);
  } else {
    weights = weights_of_steps(*worker, steps, driver);
  }
  const std::uint64_t unlike =
      unlike_first(comm, plan.first_worker(), plan.elements(), weights.back());
  Difference difference;
  if (worker != nullptr) difference = replayed_steps(*worker, weights, tolerance);
  difference.note(comm, "steps", steps, "the sequential oracle", tolerance, record);
  note_unlike(comm, weights.size() * weights.back().size(), unlike,
              fmt::format("{} after {} steps", kAlike, steps), record);
}

void compare_ranks(Communicator& comm, int servers, const std::vector<std::size_t>& counts,
                   TrainingWorker* worker, CellRecord& record) {
  std::vector<float> own;
  if (worker != nullptr) {
    own = worker->weights();
    note_digest(*worker, record);
  }
  const std::size_t all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  note_unlike(comm, own.size(), unlike_first(comm, servers, all, own),
              fmt::format("{} after the last step", kAlike), record);
}

}  // namespace dynamiccl
