#include "tuner/search/confirmation.hpp"

#include <algorithm>
#include <cmath>

#include "core/statistics/verdict.hpp"

namespace dynamiccl {
namespace {

std::vector<PairedTime> paired(const std::vector<double>& numerator,
                               const std::vector<double>& denominator) {
  std::vector<PairedTime> rounds;
  for (std::size_t i = 0; i < numerator.size(); ++i)
    rounds.push_back({numerator[i], denominator[i]});
  return rounds;
}

double median_of(const std::vector<double>& us) {
  std::vector<double> good;
  std::copy_if(us.begin(), us.end(), std::back_inserter(good), [](double t) { return t > 0; });
  return good.empty() ? NAN : median(good);
}

/// A task's fresh launches, asked.
class Fresh {
 public:
  Fresh(const FreshTimes& times, const ConfirmationRule& rule) : times_(times), rule_(rule) {
    const auto again = ratio_of(paired(times.again_us, default_us()));
    if (!again || !again->interval) return;
    band_.relative = std::max(
        {band_.relative, again->interval->high - 1, 1 / std::max(again->interval->low, 1e-9) - 1});
  }

  [[nodiscard]] bool confirmed(std::size_t arm) const {
    const auto found = times_.confirming.find(arm);
    return found != times_.confirming.end() && is_confirmed(found->second, rule_);
  }
  /// Of the default's time. What failed there saves nothing.
  [[nodiscard]] double saved(std::size_t arm) const {
    if (arm == 0) return 0;
    const double share = 1 - median_of(times_.arm_us.at(arm)) / median_of(default_us());
    return std::isfinite(share) ? share : 0;
  }
  /// What takes as long as itself is the same, be it the default or not.
  [[nodiscard]] Verdict verdict(std::size_t arm, std::size_t against) const {
    if (arm == against) return Verdict::same;
    const auto ratio = ratio_of(paired(times_.arm_us.at(arm), times_.arm_us.at(against)));
    // A choice that hardly ever works is no better than a slow one.
    return ratio ? judge(*ratio, band_) : Verdict::slower;
  }

 private:
  [[nodiscard]] const std::vector<double>& default_us() const { return times_.arm_us.at(0); }

  const FreshTimes& times_;
  const ConfirmationRule& rule_;
  EquivalenceBand band_;
};

/// Choices with those that were not confirmed taken back.
std::vector<std::size_t> kept_of(const std::vector<std::size_t>& choices,
                                 const std::vector<Fresh>& fresh) {
  std::vector<std::size_t> kept = choices;
  for (std::size_t t = 0; t < kept.size(); ++t)
    if (kept[t] != 0 && !fresh[t].confirmed(kept[t])) kept[t] = 0;
  return kept;
}

class Scorer {
 public:
  Scorer(const std::vector<SampledTask>& tasks, const std::vector<Oracle>& oracles,
         const std::vector<FreshTimes>& times, const ConfirmationRule& rule)
      : tasks_(tasks), oracles_(oracles) {
    for (const FreshTimes& one : times) fresh_.emplace_back(one, rule);
  }

  ConfirmedScore score(const ReplayScore& agent, const ReplayScore* descent) const {
    ConfirmedScore score;
    score.agent = agent.agent;
    score.gain_share_lowest = INFINITY;
    score.oracle_saves = possible(false);
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      score.tasks += oracles_[t].counts ? 1 : 0;
      score.held_out_tasks += oracles_[t].counts && tasks_[t].held_out ? 1 : 0;
    }
    if (score.tasks > 0) score.oracle_saves /= score.tasks;
    for (std::size_t seed = 0; seed < agent.choices.size(); ++seed)
      add_seed(score, agent.choices[seed],
               descent == nullptr ? nullptr : &descent->choices.at(seed),
               static_cast<double>(agent.choices.size()));
    return score;
  }

 private:
  [[nodiscard]] bool counts(std::size_t t, bool held_out_only) const {
    return oracles_[t].counts && (!held_out_only || tasks_[t].held_out);
  }
  [[nodiscard]] double possible(bool held_out_only) const {
    double sum = 0;
    for (std::size_t t = 0; t < tasks_.size(); ++t)
      if (counts(t, held_out_only)) sum += fresh_[t].saved(oracles_[t].arm);
    return sum;
  }
  [[nodiscard]] double gain_share(const std::vector<std::size_t>& arms, bool held_out_only) const {
    double sum = 0;
    for (std::size_t t = 0; t < tasks_.size(); ++t)
      if (counts(t, held_out_only)) sum += fresh_[t].saved(arms[t]);
    const double most = possible(held_out_only);
    return most > 0 ? sum / most : NAN;
  }

  void add_seed(ConfirmedScore& score, const std::vector<std::size_t>& choices,
                const std::vector<std::size_t>* descent, double seeds) const {
    const auto kept = kept_of(choices, fresh_);
    const double share = gain_share(kept, false);
    score.gain_share += share / seeds;
    score.gain_share_lowest = std::min(score.gain_share_lowest, share);
    score.unconfirmed_gain_share += gain_share(choices, false) / seeds;
    if (score.held_out_tasks > 0) score.held_out_gain_share += gain_share(kept, true) / seeds;
    const auto other = descent == nullptr ? kept : kept_of(*descent, fresh_);
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      score.choices += choices[t] != 0 ? 1 : 0;
      score.kept += kept[t] != 0 ? 1 : 0;
      score.slower += fresh_[t].verdict(kept[t], 0) == Verdict::slower ? 1 : 0;
      score.unconfirmed_slower += fresh_[t].verdict(choices[t], 0) == Verdict::slower ? 1 : 0;
      const Verdict against = fresh_[t].verdict(kept[t], other[t]);
      score.slower_than_descent += against == Verdict::slower ? 1 : 0;
      score.faster_than_descent += against == Verdict::faster ? 1 : 0;
    }
  }

  const std::vector<SampledTask>& tasks_;
  const std::vector<Oracle>& oracles_;
  std::vector<Fresh> fresh_;
};

}  // namespace

WorkedTimes worked(const std::vector<PairedTime>& rounds) {
  WorkedTimes times;
  for (const PairedTime& round : rounds) {
    if (!(round.chosen_us > 0) || !(round.default_us > 0)) continue;
    times.chosen_us.push_back(round.chosen_us);
    times.default_us.push_back(round.default_us);
  }
  return times;
}

std::optional<Ratio> ratio_of(const std::vector<PairedTime>& rounds, double confidence) {
  const auto [chosen, defaults] = worked(rounds);
  if (chosen.size() < 2 || chosen.size() * 2 < rounds.size()) return std::nullopt;
  return ratio_paired(chosen, defaults, confidence);
}

bool is_confirmed(const std::vector<PairedTime>& rounds, const ConfirmationRule& rule) {
  const auto ratio = ratio_of(rounds, rule.confidence);
  return ratio && ratio->interval && ratio->interval->high < 1;
}

double deciding_confidence(const std::vector<PairedTime>& rounds, const ConfirmationRule& rule,
                           bool cut_off) {
  const bool between = rounds.size() % static_cast<std::size_t>(rule.launches) != 0;
  return cut_off && between ? kConfidenceOfCut : rule.confidence;
}

Verdict confirmed_verdict(const std::vector<PairedTime>& rounds, const ConfirmationRule& rule,
                          bool cut_off) {
  ConfirmationRule held = rule;
  held.confidence = deciding_confidence(rounds, rule, cut_off);
  const bool looked = rounds.size() >= static_cast<std::size_t>(rule.launches);
  if (looked && is_confirmed(rounds, held)) return Verdict::faster;
  const auto ratio = ratio_of(rounds, rule.confidence);
  return cut_off || !ratio ? Verdict::unclear : judge(*ratio, {rule.band});
}

Confirmations::Confirmations(const std::vector<Ask>& choices, const ConfirmationRule& rule)
    : rule_(rule) {
  for (const Ask& choice : choices) times_[choice];
}

bool is_open(const std::vector<PairedTime>& rounds, const ConfirmationRule& rule) {
  const auto launches = static_cast<std::size_t>(rule.launches);
  if (rounds.size() >= launches * static_cast<std::size_t>(rule.looks)) return false;
  if (rounds.size() < launches || rounds.size() % launches != 0) return true;
  const auto ratio = ratio_of(rounds, rule.confidence);
  if (!ratio) return false;  // it hardly ever works
  if (!ratio->interval) return true;
  return ratio->interval->high >= 1 && ratio->interval->low <= 1 / (1 + rule.band);
}

std::vector<Ask> Confirmations::round() const {
  std::vector<Ask> asks;
  for (const auto& [choice, rounds] : times_) {
    if (!is_open(rounds, rule_)) continue;
    const Ask reference{choice.task, 0};
    // Choices are in the order of their tasks.
    if (asks.empty() || asks.back().task != choice.task) asks.push_back(reference);
    asks.push_back(choice);
  }
  return asks;
}

void Confirmations::add(const std::vector<Ask>& asks, const std::vector<Measured>& measured) {
  DYN_ASSERT(asks.size() == measured.size(), "one answer per ask");
  std::map<Ask, double> us;
  for (std::size_t i = 0; i < asks.size(); ++i)
    us[asks[i]] = measured[i].trial.ok ? measured[i].trial.time.count() : NAN;
  for (const auto& [ask, time] : us)
    if (ask.arm != 0) times_.at(ask).push_back({time, us.at({ask.task, 0})});
}

std::vector<ConfirmedScore> score_confirmed(const std::vector<SampledTask>& tasks,
                                            const std::vector<Oracle>& oracles,
                                            const std::vector<ReplayScore>& scores,
                                            const std::vector<FreshTimes>& fresh,
                                            const ConfirmationRule& rule) {
  const Scorer scorer(tasks, oracles, fresh, rule);
  const auto descent = std::find_if(scores.begin(), scores.end(), [](const ReplayScore& score) {
    return score.agent == "coordinate-descent";
  });
  std::vector<ConfirmedScore> confirmed;
  for (const ReplayScore& score : scores)
    confirmed.push_back(scorer.score(score, descent == scores.end() ? nullptr : &*descent));
  return confirmed;
}

}  // namespace dynamiccl
