#include "tuner/search/confirmation.hpp"

#include <algorithm>
#include <cmath>

#include "core/verdict.hpp"

namespace dynamiccl {
namespace {

/// Numerator over denominator in the rounds [from, to) that have both; nullopt when fewer than half
/// have.
std::optional<Ratio> ratio_of(const std::vector<double>& numerator,
                              const std::vector<double>& denominator, std::size_t from,
                              std::size_t to) {
  std::vector<double> above;
  std::vector<double> below;
  for (std::size_t i = from; i < to; ++i) {
    if (!(numerator[i] > 0) || !(denominator[i] > 0)) continue;
    above.push_back(numerator[i]);
    below.push_back(denominator[i]);
  }
  if (above.size() < 2 || above.size() * 2 < to - from) return std::nullopt;
  return ratio_paired(above, below);
}

double median_of(const std::vector<double>& us, std::size_t from, std::size_t to) {
  std::vector<double> good;
  for (std::size_t i = from; i < to; ++i)
    if (us[i] > 0) good.push_back(us[i]);
  return good.empty() ? NAN : median(good);
}

/// A task's fresh launches, asked.
class Fresh {
 public:
  explicit Fresh(const FreshTimes& times)
      : times_(times), rounds_(times.again_us.size()), middle_(rounds_ / 2) {
    const auto again = ratio_of(times.again_us, default_us(), middle_, rounds_);
    if (!again || !again->interval) return;
    band_.relative = std::max(
        {band_.relative, again->interval->high - 1, 1 / std::max(again->interval->low, 1e-9) - 1});
  }

  [[nodiscard]] bool confirmed(std::size_t arm) const {
    const auto ratio = ratio_of(times_.arm_us.at(arm), default_us(), 0, middle_);
    return ratio && is_confirmed(*ratio);
  }
  /// Of the default's time, by the scoring half. What failed there saves nothing.
  [[nodiscard]] double saved(std::size_t arm) const {
    if (arm == 0) return 0;
    const double share = 1 - median_of(times_.arm_us.at(arm), middle_, rounds_) /
                                 median_of(default_us(), middle_, rounds_);
    return std::isfinite(share) ? share : 0;
  }
  /// What takes as long as itself is the same, be it the default or not.
  [[nodiscard]] Verdict verdict(std::size_t arm, std::size_t against) const {
    if (arm == against) return Verdict::same;
    const auto ratio = ratio_of(times_.arm_us.at(arm), times_.arm_us.at(against), middle_, rounds_);
    // A choice that hardly ever works is no better than a slow one.
    return ratio ? judge(*ratio, band_) : Verdict::slower;
  }

 private:
  [[nodiscard]] const std::vector<double>& default_us() const { return times_.arm_us.at(0); }

  const FreshTimes& times_;
  std::size_t rounds_;
  std::size_t middle_;
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
         const std::vector<FreshTimes>& times)
      : tasks_(tasks), oracles_(oracles), fresh_(times.begin(), times.end()) {}

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

bool is_confirmed(const Ratio& ratio) { return ratio.interval && ratio.interval->high < 1; }

std::vector<ConfirmedScore> score_confirmed(const std::vector<SampledTask>& tasks,
                                            const std::vector<Oracle>& oracles,
                                            const std::vector<ReplayScore>& scores,
                                            const std::vector<FreshTimes>& fresh) {
  const Scorer scorer(tasks, oracles, fresh);
  const auto descent = std::find_if(scores.begin(), scores.end(), [](const ReplayScore& score) {
    return score.agent == "coordinate-descent";
  });
  std::vector<ConfirmedScore> confirmed;
  for (const ReplayScore& score : scores)
    confirmed.push_back(scorer.score(score, descent == scores.end() ? nullptr : &*descent));
  return confirmed;
}

}  // namespace dynamiccl
