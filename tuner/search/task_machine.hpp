#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tuner/search/call_trial.hpp"
#include "tuner/search/confirmation.hpp"

// One machine learns which setting of a task is best: next(state, event) says what happens. It has
// no input or output, no clock and no chance, so that the tests walk through all orders of events.
// Whoever measures is a driver of it: it does what an action says, asks the agent when the machine
// says `choose`, stores what came of it, and tells the machine by the next event. There are three:
//   call    a size of a running job's collectives (tuner/online/call_driver): some of its calls
//   step    a training step (tuner/job/step_trials): the calls of a step that share a setting
//   launch  a launch of somebody's command (orchestrator/tune/job): the whole job is the task
// Stages, and what leads from one to the next:
//   reference   the setting in force, or the default, is measured `references` times; then `choose`
//   asking      the agent was asked: `chosen` begins a trial, `finished` ends the search
//   trying      the one setting that is tried is measured; then it is asked again
//   confirming  a candidate is compared with what it is to replace; it is kept only if it is faster
//   settled     nothing is tried; `search` (an alarm, a new rhythm) begins again
// What differs between the drivers is how a candidate is found and confirmed, so it is a parameter:
//   at_once set    A trial goes on until a sequential test knows whether it is faster than what is
//                  in force, whose samples lie around it. What seems faster is a candidate at once:
//                  the setting in force is measured `again` times, and gives way if it is slower
//                  still. The search starts from, and goes back to, the best setting so far. (call)
//   at_once empty  A trial is one measurement, which the agent judges. At the end what it
//                  recommends is measured against the default in pairs, the first of a pair in
//                  turn, as long as the rule asks; it stays only if it is surely faster. The search
//                  starts from, and goes back to, the default. (step, launch)
// What holds in every order of events, and is checked in all of them:
//   - one setting is in force: `running`, which every action names;
//   - a setting other than the default is kept only after a comparison that says it is faster;
//   - `search` and `revert` go back, to the default or to what is kept; so does a failed candidate;
//   - no more than `most` settings are tried in a search;
//   - each search ends: by `finished`, by `most`, by the last look at its pairs, or by `stop`,
//   which
//     judges the pairs that there are more strictly, as whoever stops may have chosen the moment.
namespace dynamiccl {

/// What differs between tasks.
struct TaskRules {
  std::size_t references = 1;           ///< measurements before the first trial
  std::size_t most = 0;                 ///< settings that a search tries at most; 0: the agent says
  std::size_t again = 3;                ///< with at_once: samples before a candidate is judged
  std::optional<TrialRules> at_once{};  ///< trials are judged here, not by the agent
  ConfirmationRule pairs{};             ///< without at_once
};

enum class TaskStage : std::uint8_t { reference, asking, trying, confirming, settled };

struct TaskState {
  TaskRules rules{};
  TaskStage stage = TaskStage::settled;
  std::size_t kept = 0;             ///< what stays when nothing is tried
  std::size_t running = 0;          ///< the one setting in force
  std::size_t candidate = 0;        ///< that is being confirmed
  std::size_t wanted = 0;           ///< measurements of the reference until something else happens
  std::size_t tried = 0;            ///< settings, in this search
  CallSamples reference{};          ///< with at_once: of what is kept
  CallSamples trial{};              ///< of what is tried, or was tried last
  double noise = 0;                 ///< standard deviation of ln(us) of a sample; 0: not known
  std::vector<PairedTime> pairs{};  ///< of the candidate
  std::optional<double> half{};     ///< microseconds of a pair's first; NaN: it failed
};

struct TaskEvent {
  enum Kind : std::uint8_t {
    search,    ///< begin, or begin again
    measured,  ///< `us` under `arm`; NaN: it failed. Of what no longer runs it says nothing
    chosen,    ///< the answer to `choose`: try `arm`
    finished,  ///< the answer to `choose` or `conclude`: without at_once confirm `arm`
    stop,      ///< no more measurements come
    revert,    ///< a guard: `arm` is kept, it is measured anew, and the search goes on
    close      ///< `arm` is kept, and nothing is tried
  };
  Kind kind = search;
  std::size_t arm = 0;
  double us = 0;
  std::size_t calls = 1;  ///< that `us` is the mean of
};

struct TaskAction {
  enum Kind : std::uint8_t {
    run,       ///< put `arm` in force and measure it
    choose,    ///< ask the agent what to try; `arm` stays in force meanwhile
    conclude,  ///< enough was tried: ask it what it recommends
    settle     ///< put `arm` in force; nothing is tried
  };
  Kind kind = settle;
  std::size_t arm = 0;
  bool operator==(const TaskAction&) const = default;
};

/// Was enough tried in this search?
constexpr bool is_spent(const TaskState& state) {
  return state.rules.most > 0 && state.tried >= state.rules.most;
}

std::pair<TaskState, TaskAction> next(TaskState state, const TaskEvent& event);

}  // namespace dynamiccl
