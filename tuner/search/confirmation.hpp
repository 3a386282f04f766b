#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/statistics/statistics.hpp"
#include "core/statistics/verdict.hpp"
#include "tuner/search/replay.hpp"

namespace dynamiccl {

/// Microseconds of a choice and of its task's default in the same round; NaN where a launch failed.
struct PairedTime {
  double chosen_us = 0;
  double default_us = 0;
};

/// How choices are confirmed. A choice whose launches leave it open whether it is faster gets as
/// many again, up to `looks` times; with four looks at `confidence` each, a choice that is as fast
/// as its default is kept in at most 1 of 40 cases (Pocock 1977, Biometrika 64: 0.018 two-sided).
struct ConfirmationRule {
  int launches = 10;  ///< before each look
  int looks = 4;
  double confidence = 0.982;
  double band = 0.02;  ///< what a choice may gain at most and is not worth keeping
};

/// The rounds of which both launches worked. [rounds] each
struct WorkedTimes {
  std::vector<double> chosen_us;
  std::vector<double> default_us;
};
WorkedTimes worked(const std::vector<PairedTime>& rounds);

/// Chosen over default in the rounds that have both; nullopt when fewer than two or than half have.
std::optional<Ratio> ratio_of(const std::vector<PairedTime>& rounds, double confidence = 0.95);

/// Is the choice kept? When it is faster with the rule's confidence, be it by less than any band.
bool is_confirmed(const std::vector<PairedTime>& rounds, const ConfirmationRule& rule);

/// Of rounds that were cut off between two looks: who saw them may have chosen the moment. Six
/// rounds and three looks, or three and six at 99 %, keep no more than 1 of 40 by chance so,
/// wherever they are cut.
inline constexpr double kConfidenceOfCut = 0.995;

/// With which confidence these rounds are judged.
double deciding_confidence(const std::vector<PairedTime>& rounds, const ConfirmationRule& rule,
                           bool cut_off);

/// FASTER where the choice is kept; else what the rounds say of it, UNCLEAR where they were cut
/// off. A cut takes the place of the look that would have come next, from as many rounds on as the
/// first look has; between two looks more confidence is asked for (kConfidenceOfCut).
Verdict confirmed_verdict(const std::vector<PairedTime>& rounds, const ConfirmationRule& rule,
                          bool cut_off);

/// Do a choice's rounds leave open whether it is kept, so that another one is measured?
bool is_open(const std::vector<PairedTime>& rounds, const ConfirmationRule& rule);

/// Choices of many tasks while they are confirmed in common rounds.
class Confirmations {
 public:
  /// @param choices of any tasks, several of one task too; arms other than the default
  Confirmations(const std::vector<Ask>& choices, const ConfirmationRule& rule);
  /// What the next round measures: the choices that are still open and their tasks' defaults.
  /// Empty when none is.
  [[nodiscard]] std::vector<Ask> round() const;
  /// @param measured one answer per ask, of any order that has all of round()
  void add(const std::vector<Ask>& asks, const std::vector<Measured>& measured);
  /// By choice, in the order of the rounds.
  [[nodiscard]] const std::map<Ask, std::vector<PairedTime>>& times() const { return times_; }

 private:
  ConfirmationRule rule_;
  std::map<Ask, std::vector<PairedTime>> times_;
};

/// Fresh launches of a task.
struct FreshTimes {
  /// By arm other than the default, as far as a search chose it.
  std::map<std::size_t, std::vector<PairedTime>> confirming;
  /// To score, microseconds by arm and round; has arm 0. Each round has one launch of every arm and
  /// one of the default again; NaN where it failed.
  std::map<std::size_t, std::vector<double>> arm_us;
  std::vector<double> again_us;  ///< the default again, by round
};

/// How an agent's choices do on fresh launches. Choices are confirmed as `tune` does it, and are
/// the default where they are not; other launches score.
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
/// @param rule  by which they were confirmed
std::vector<ConfirmedScore> score_confirmed(const std::vector<SampledTask>& tasks,
                                            const std::vector<Oracle>& oracles,
                                            const std::vector<ReplayScore>& scores,
                                            const std::vector<FreshTimes>& fresh,
                                            const ConfirmationRule& rule);

}  // namespace dynamiccl
