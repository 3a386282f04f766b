#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/statistics.hpp"
#include "tuner/search/replay.hpp"

namespace dynamiccl {

/// Is a choice kept that takes `ratio` of its default's time? When it is faster with confidence, be
/// it by less than any band.
bool is_confirmed(const Ratio& ratio);

/// Fresh launches of a task in rounds: each round has one of the default, one of the default again
/// and one of every arm that is asked about. NaN where a launch failed.
struct FreshTimes {
  std::map<std::size_t, std::vector<double>> arm_us;  ///< microseconds by arm and round; has arm 0
  std::vector<double> again_us;                       ///< the default again, by round
};

/// How an agent's choices do on fresh launches. Choices are confirmed on the first half of the
/// rounds, as `tune` does it, and are the default where they are not; the second half scores.
struct ConfirmedScore {
  std::string agent;
  int tasks = 0;          ///< that count: the oracle was found worth it on other launches
  int choices = 0;        ///< (task, seed) whose search chose something else than the default
  int kept = 0;           ///< of these, confirmed
  double gain_share = 0;  ///< time saved over the oracle's, mean over seeds
  double gain_share_lowest = 0;  ///< of the seeds
  double oracle_saves = 0;       ///< share of the default's time, mean over tasks that count
  int held_out_tasks = 0;
  double held_out_gain_share = 0;
  int slower = 0;  ///< (task, seed) that are SLOWER beyond the default against itself
  /// What it would be if nothing were confirmed.
  double unconfirmed_gain_share = 0;
  int unconfirmed_slower = 0;
  /// (task, seed) that are SLOWER, or FASTER, than coordinate descent's choice with the same seed,
  /// beyond the default against itself. 0 where coordinate descent did not search.
  int slower_than_descent = 0;
  int faster_than_descent = 0;
};

/// @param fresh by task: times of the default, of the oracle's arm and of every choice
std::vector<ConfirmedScore> score_confirmed(const std::vector<SampledTask>& tasks,
                                            const std::vector<Oracle>& oracles,
                                            const std::vector<ReplayScore>& scores,
                                            const std::vector<FreshTimes>& fresh);

}  // namespace dynamiccl
