#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "plugin/agreement/call_stream.hpp"
#include "tuner/job/step_rhythm.hpp"

namespace dynamiccl {

/// One collective of a job, from the rank that tells for its process.
struct JobCall {
  std::int64_t ns = 0;
  std::uint64_t communicator = 0;
  std::uint64_t bytes = 0;
  std::uint32_t device_ns = 0;  ///< 0: not timed
  std::uint32_t epoch = 0;
  std::uint32_t kind = 0;  ///< as RhythmCall
  std::uint8_t function = 0;
  std::uint8_t algorithm = CallCell::kAny;
  std::uint8_t protocol = CallCell::kAny;
  std::uint8_t channels = 0;
};

/// What a job calls of one communicator, collective and size.
struct MixEntry {
  std::uint64_t communicator = 0;
  int ranks = 1;
  std::size_t function = 0;
  std::uint64_t bytes = 0;
  std::uint64_t calls = 0;
  std::uint64_t timed = 0;  ///< of them
  double device_us = 0;     ///< sum over the timed ones
  /// Times a call happens in a step; 0: never in one, or no step is known.
  double per_step = 0;
};

/// Steps under one table.
struct StepReading {
  std::size_t steps = 0;
  Micros step;        ///< median
  double spread = 0;  ///< robust standard deviation over `step`
};

/// Looks at what a job's ranks tell in their shared folder; takes no part in anything. One thread.
class JobWatch {
 public:
  explicit JobWatch(std::string folder) : folder_(std::move(folder)) {}

  /// Takes in what was recorded since; milliseconds at most.
  void refresh();

  /// Has any rank loaded the plugin's profiler half?
  [[nodiscard]] bool heard() const { return !streams_.empty(); }
  /// Have all communicators been destroyed?
  [[nodiscard]] bool over() const;
  /// Calls of the process that is listened to, oldest first: the one with the lowest rank in the
  /// largest communicator.
  [[nodiscard]] const std::vector<JobCall>& calls() const;
  /// The step as found so far; looked for anew when enough has been heard since.
  [[nodiscard]] const Rhythm& rhythm();
  /// Does the step sum anything? What only sends copies is a job's start rather than its work.
  [[nodiscard]] bool reduces() const;
  /// Has the sequence outlived as many calls as it was found in, and was nothing longer found among
  /// all of them then? Layers that are alike repeat before steps do, and are taken for the step
  /// until several steps were heard.
  [[nodiscard]] bool confirmed() const;
  /// How often other calls came between two steps of those heard last: an evaluation, a checkpoint,
  /// or what a longer sequence holds besides.
  [[nodiscard]] std::size_t interruptions() const;
  /// Collectives and bytes of a step, sorted: the same in every launch of a job.
  using StepCalls = std::vector<std::pair<std::uint8_t, std::uint64_t>>;
  [[nodiscard]] StepCalls step_calls() const;
  /// Were the last calls that were heard those of a step?
  [[nodiscard]] bool ends_in_steps() const;
  /// Looks once more among all that was heard: searches are seldom while calls come, and what
  /// repeats may be a part of a longer sequence by now. @returns whether it is, and gives way
  bool outgrown();
  /// The last sequence of calls that was found differs from the one before.
  [[nodiscard]] int rhythm_changes() const { return rhythm_changes_; }
  /// Steps that ran wholly under the table of `epoch`; nullopt without a rhythm or such steps.
  [[nodiscard]] std::optional<StepReading> reading(std::uint32_t epoch);
  /// Median of the last five steps under the table of `epoch`; nullopt: fewer, or the rhythm is
  /// lost.
  [[nodiscard]] std::optional<Micros> recent_step(std::uint32_t epoch);
  /// The longer of the last whole step and what the one under way has taken so far: after a change
  /// no other says so as soon. nullopt: no rhythm.
  [[nodiscard]] std::optional<Micros> latest_step();
  /// Steps' times in the order they came, microseconds; those with a time alone.
  [[nodiscard]] std::vector<double> step_times();
  [[nodiscard]] std::vector<MixEntry> mix();
  /// What NCCL expects of algorithm and protocol (CallStreamHeader::predicted), of any rank;
  /// nullopt: no call of that size and collective was decided.
  [[nodiscard]] std::optional<std::array<float, kPredictions>> predicted(std::uint64_t communicator,
                                                                         std::size_t function,
                                                                         std::size_t bin) const;
  /// Of every collective and size that NCCL has decided on a communicator; see witness_cost().
  [[nodiscard]] std::vector<CallCost> costs(std::uint64_t communicator) const;
  /// Algorithms x protocols that NCCL has not ruled out for a collective in some size; bit a*3+p.
  [[nodiscard]] std::uint32_t possible(std::size_t function) const;
  /// Steps come and NCCL asks the tuner no more: captured graphs replay their calls. "" or why
  /// there can be no learning per call.
  [[nodiscard]] std::string graph_replays();
  [[nodiscard]] int ranks() const;
  [[nodiscard]] int nodes() const;
  /// Of the communicators with the most ranks the one that NCCL decided most calls of; 0: none.
  [[nodiscard]] std::uint64_t largest() const;
  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }

 private:
  struct Told {
    std::unique_ptr<CallStream> stream;
    std::uint64_t next = 0;
  };
  struct Process {
    std::vector<JobCall> calls;
    std::uint64_t heard = 0;  ///< calls in all, also those that were dropped
    int largest = 0;          ///< ranks of its largest communicator
    int rank = 0;             ///< in that
  };
  [[nodiscard]] const Process* listened() const;
  void take(Told& told);
  void search_rhythm(const Process& process);
  /// At most as many as it was found in.
  [[nodiscard]] std::size_t calls_since_adoption(const Process& process) const;
  /// Times of steps that ran wholly under one table, microseconds, oldest first.
  [[nodiscard]] std::vector<double> times_under(std::uint32_t epoch);

  std::string folder_;
  std::map<std::string, Told> streams_;
  std::map<std::uint64_t, Process> processes_;
  std::map<std::tuple<std::uint64_t, std::uint8_t, std::uint64_t>, std::uint32_t> kinds_;
  Rhythm rhythm_;
  std::vector<JobCall> rhythm_calls_;  ///< that its steps' indices are of
  /// Where several threads call, each communicator's own order alone is the same in every step.
  std::optional<std::uint64_t> only_;
  bool holds_ = false;              ///< the rhythm goes on among the last calls
  std::uint64_t rhythm_heard_ = 0;  ///< calls when it was made
  std::uint64_t searched_heard_ = 0;
  std::int64_t adopted_ns_ = 0;    ///< start of the last call in which its sequence was found
  std::size_t adopted_calls_ = 0;  ///< among which, from its first step on
  bool confirmed_ = false;         ///< it was found once more when it had outlived as many
  int rhythm_changes_ = 0;
  std::uint64_t decided_ = 0;    ///< decisions seen last
  std::int64_t decided_ns_ = 0;  ///< when that was
  std::vector<std::string> problems_;
};

}  // namespace dynamiccl
