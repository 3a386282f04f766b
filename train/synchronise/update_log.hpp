#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/spec/training.hpp"

namespace dynamiccl {

/// Whether one server answers each worker by itself throughout the cell. Groups of workers are one
/// worker each to it.
bool answers_singly(const TrainingSpec& spec);

/// What a server that answers each worker by itself did, in its order.
struct UpdateEvent {
  enum class Kind : std::uint32_t {
    applied,   ///< a worker's gradient came and was used
    dropped,   ///< it came too late
    answered,  ///< a worker was given the weights of this moment and goes on
    ended,     ///< it was given them at a phase's end, where all have done the same
    switched   ///< from here on workers wait as TrainingSpec::switch_to says
  };
  Kind kind = Kind::applied;
  std::uint32_t worker = 0;
  std::uint32_t clock = 0;  ///< steps of this worker whose gradients had come before this event
};
using UpdateLog = std::vector<UpdateEvent>;

/// What breaks the rules of the synchronisation in the log, which is looked at without the server's
/// own reckoning: a worker further ahead than the bound, a gradient used twice or not in order, an
/// update of other than all but the backup workers. Empty where nothing does.
/// @param workers that the server answers: groups where there are any
std::string broken_rule(const TrainingSpec& spec, int workers, const UpdateLog& log);

/// How stale the gradients that were used were, for the records: over those applied, how many
/// others the server applied between the worker's weights and its gradient.
struct Staleness {
  double mean = 0;
  int most = 0;
  int furthest_ahead = 0;  ///< steps of a worker that was let go on, beyond the slowest's
  int dropped = 0;
};
Staleness staleness_of(int workers, const UpdateLog& log);

}  // namespace dynamiccl
