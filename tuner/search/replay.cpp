#include "tuner/search/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>

#include "core/statistics/fast_random.hpp"
#include "core/statistics/statistics.hpp"
#include "core/vocabulary/usable_cores.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kManyArms = 24;

/// Launches of one of `parts` parts: every so manieth one from `part` on.
std::vector<double> launches_of(const std::vector<double>& launches, std::size_t part,
                                std::size_t parts) {
  std::vector<double> chosen;
  for (std::size_t i = part; i < launches.size(); i += parts) chosen.push_back(launches[i]);
  return chosen;
}

/// What is known of a task before any agent looks.
struct Judged {
  std::size_t oracle = 0;
  bool worth = false;
  std::vector<double> score_us;  ///< by arm, on the scoring part; 0 = failed
  double band = 0.02;            ///< default against default, relative

  [[nodiscard]] double log_faster(std::size_t arm) const {
    return score_us[arm] > 0 ? std::log(score_us[0] / score_us[arm]) : 0;
  }
  [[nodiscard]] double saved(std::size_t arm) const {
    return score_us[arm] > 0 ? 1 - score_us[arm] / score_us[0] : 0;
  }
};

Judged judge_task(const SampledTask& task, const ReplayOptions& options) {
  Judged judged;
  const std::size_t parts = options.parts;
  if (task.arm_us.empty() || task.arm_us[0].size() < parts)
    throw Error(ErrorKind::input,
                fmt::format("{}: a replay needs at least {} launches of the default, it has {}; "
                            "sweep with more launches (tune.sweep_launches)",
                            task.search.task.key.task.text(), parts,
                            task.arm_us.empty() ? 0 : task.arm_us[0].size()));
  double best = INFINITY;
  for (std::size_t a = 0; a < task.arm_us.size(); ++a) {
    const auto seen = launches_of(task.arm_us[a], 0, parts);
    const auto scored = launches_of(task.arm_us[a], parts - 1, parts);
    judged.score_us.push_back(scored.empty() ? 0 : median(scored));
    if (!seen.empty() && !scored.empty() && median(seen) < best) {
      best = median(seen);
      judged.oracle = a;
    }
  }
  const auto reference = launches_of(task.arm_us[0], 1, parts);
  const auto oracle = launches_of(task.arm_us[judged.oracle], 1, parts);
  judged.worth = !oracle.empty() && median(reference) / median(oracle) >= options.worth;
  std::vector<double> logs;
  for (const double us : task.arm_us[0]) logs.push_back(std::log(us));
  const double n = static_cast<double>(launches_of(task.arm_us[0], parts - 1, parts).size());
  judged.band = std::max(0.02, std::exp(2.5 * standard_deviation(logs) / std::sqrt(n)) - 1);
  return judged;
}

/// One agent with one seed through all tasks.
class Run {
 public:
  Run(const std::vector<SampledTask>& tasks, const std::vector<Judged>& judged,
      const ReplayOptions& options, const std::string& name, int seed)
      : judged_(judged), options_(options), name_(name), seed_(seed), random_(mixed(seed)) {
    order_.resize(tasks.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    for (std::size_t i = order_.size(); i > 1; --i)
      std::swap(order_[i - 1], order_[random_.below(i)]);
    for (const std::size_t t : order_) {
      sampled_.push_back(&tasks[t]);
      tasks_.push_back(tasks[t].search);
    }
    reached_.assign(tasks_.size(), INFINITY);
    first_launch_ = random_.below(oracle_launches());
  }

  void go(const std::function<void(const ReplayStep&)>& on_step) {
    AgentOptions agent_options = options_.agent;
    agent_options.seed = mixed(seed_);
    agent_options.repeats = static_cast<int>(oracle_launches());
    std::unique_ptr<Agent> agent;
    if (options_.make) agent = options_.make(name_, agent_options);
    if (!agent) agent = make_agent(name_, agent_options);
    if (options_.evaluations == 0) {
      for (const SearchTask& task : tasks_)
        outcomes_.emplace_back().arm = agent->recommend(task.task);
      return;
    }
    SearchOptions search_options;
    search_options.limits = options_.limits;
    // As many as a live search has; what is learnt of one serves the next.
    search_options.in_flight = std::max<std::size_t>(1, (tasks_.size() + 3) / 4);
    search_options.max_evaluations = options_.evaluations.value_or(0);
    outcomes_ = search(
        *agent, tasks_, [&](const std::vector<Ask>& asks) { return draw(asks); }, search_options,
        [&](const SearchStep& step) {
          note_reached(*agent, step);
          if (on_step) on_step({name_, seed_, order_[step.task], &tasks_[step.task], &step});
        });
  }

  [[nodiscard]] int evaluations() const {
    int sum = 0;
    for (const SearchOutcome& outcome : outcomes_) sum += outcome.evaluations;
    return sum;
  }
  /// Evaluations that the oracle's choice rests on.
  [[nodiscard]] double exhaustive() const {
    std::size_t sum = 0;
    for (const SearchTask& task : tasks_) sum += task.task.space->arms().size();
    return static_cast<double>(sum * oracle_launches());
  }

  /// By task.
  [[nodiscard]] std::vector<std::size_t> choices() const {
    std::vector<std::size_t> arms(outcomes_.size());
    for (std::size_t i = 0; i < outcomes_.size(); ++i) arms[order_[i]] = outcomes_[i].arm;
    return arms;
  }

  /// Time saved over the oracle's, over the tasks that count. NaN when none does.
  [[nodiscard]] double gain_share(bool held_out_only) const {
    double saved = 0;
    double possible = 0;
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      const Judged& judged = judged_[order_[i]];
      if (!judged.worth || (held_out_only && !sampled_[i]->held_out)) continue;
      saved += judged.saved(outcomes_[i].arm);
      possible += judged.saved(judged.oracle);
    }
    return possible > 0 ? saved / possible : NAN;
  }

  void add_to(ReplayScore& score, std::vector<double>& to_95, bool many_only) const {
    SeedScore seed;
    seed.evaluations = evaluations();
    int reached = 0;
    int counted = 0;
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      const Judged& judged = judged_[order_[i]];
      const double ratio = judged.score_us[outcomes_[i].arm] / judged.score_us[0];
      score.worst_ratio = std::max(score.worst_ratio, ratio);
      if (ratio > 1 + judged.band) ++seed.slower;
      if (!judged.worth) continue;
      ++counted;
      seed.log_faster += judged.log_faster(outcomes_[i].arm);
      double evaluations = reached_[i];
      // What was measured of other tasks may have shown all there is to know of this one.
      if (outcomes_[i].evaluations == 0 && near_oracle(i, outcomes_[i].arm)) evaluations = 0;
      if (std::isfinite(evaluations)) ++reached;
      seed.to_95.push_back(evaluations);
      if (!many_only || sampled_[i]->arm_us.size() >= kManyArms) to_95.push_back(evaluations);
    }
    if (counted > 0) score.reached_95 += static_cast<double>(reached) / counted / options_.seeds;
    score.slower += seed.slower;
    score.by_seed.push_back(std::move(seed));
  }

 private:
  static std::uint64_t mixed(int seed) {
    return 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(seed + 1);
  }

  /// As launches_of(0) counts them.
  [[nodiscard]] std::size_t shown_launches(std::size_t launches) const {
    return (launches + options_.parts - 1) / options_.parts;
  }

  [[nodiscard]] std::size_t oracle_launches() const {
    std::size_t most = 1;
    for (const SampledTask* task : sampled_)
      most = std::max(most, shown_launches(task->arm_us.front().size()));
    return most;
  }

  /// Which of its launches an arm is shown: the round's, or the next that it was not shown yet.
  std::size_t next_launch(const Ask& ask, std::size_t launches) {
    std::vector<bool>& shown = shown_[ask];
    if (std::all_of(shown.begin(), shown.end(), [](bool one) { return one; }))
      shown.assign(launches, false);
    std::size_t next = (first_launch_ + round_) % launches;
    while (shown[next]) next = (next + 1) % launches;
    shown[next] = true;
    return next;
  }

  std::vector<Measured> draw(const std::vector<Ask>& asks) {
    std::vector<Measured> results;
    for (const Ask& ask : asks) {
      const SampledTask& task = *sampled_[ask.task];
      const auto& all = task.arm_us[ask.arm];
      Measured measured;
      measured.regime_id = task.regime_id;
      measured.regime = task.regime;
      measured.trial.ok = !all.empty();
      if (measured.trial.ok) {
        const std::size_t launch = options_.parts * next_launch(ask, shown_launches(all.size()));
        measured.trial.time = Micros{all[launch]};
        measured.calls = 1;
        if (!task.arm_launch.empty()) measured.origin = task.arm_launch[ask.arm][launch];
      }
      results.push_back(measured);
    }
    ++round_;
    return results;
  }

  void note_reached(const Agent& agent, const SearchStep& step) {
    if (std::isfinite(reached_[step.task])) return;
    if (near_oracle(step.task, agent.recommend(tasks_[step.task].task)))
      reached_[step.task] = step.step + 1;
  }

  [[nodiscard]] bool near_oracle(std::size_t task, std::size_t arm) const {
    const Judged& judged = judged_[order_[task]];
    return judged.saved(arm) >= 0.95 * judged.saved(judged.oracle);
  }

  const std::vector<Judged>& judged_;
  const ReplayOptions& options_;
  std::string name_;
  int seed_;
  FastRandom random_;
  std::vector<std::size_t> order_;
  std::vector<const SampledTask*> sampled_;
  std::vector<SearchTask> tasks_;
  std::map<Ask, std::vector<bool>> shown_;  ///< of an arm's launches
  std::size_t first_launch_ = 0;
  std::size_t round_ = 0;
  std::vector<double> reached_;  ///< own evaluations until then, infinite = not yet
  std::vector<SearchOutcome> outcomes_;
};

/// Calls job(0 .. count - 1) on all processors. @throws what a job throws, when all have ended
void on_all_processors(std::size_t count, const std::function<void(std::size_t)>& job) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex failing;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        job(i);
      } catch (...) {
        const std::lock_guard lock(failing);
        if (!failure) failure = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    const auto processors = static_cast<std::size_t>(usable_cores());
    for (std::size_t i = 1; i < std::min(count, processors); ++i) others.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

ReplayScore score_agent(const std::vector<SampledTask>& tasks, const std::vector<Judged>& judged,
                        const ReplayOptions& options, const std::string& name,
                        const std::vector<std::unique_ptr<Run>>& runs) {
  ReplayScore score;
  score.agent = name;
  score.seeds = options.seeds;
  bool many = false;
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    if (!judged[t].worth) continue;
    ++score.tasks;
    score.oracle_log_faster += judged[t].log_faster(judged[t].oracle);
    if (tasks[t].held_out) ++score.held_out_tasks;
    many = many || tasks[t].arm_us.size() >= kManyArms;
  }
  std::vector<double> to_95;
  score.gain_share_lowest = INFINITY;
  for (const auto& run : runs) {
    score.evaluations += static_cast<double>(run->evaluations()) / options.seeds;
    score.share_of_exhaustive += run->evaluations() / run->exhaustive() / options.seeds;
    const double share = run->gain_share(false);
    score.gain_share += share / options.seeds;
    score.gain_share_lowest = std::min(score.gain_share_lowest, share);
    if (score.held_out_tasks > 0)
      score.held_out_gain_share += run->gain_share(true) / options.seeds;
    run->add_to(score, to_95, many);
    score.choices.push_back(run->choices());
  }
  if (!to_95.empty()) score.evaluations_to_95 = median(to_95);
  return score;
}

/// The setting that all tasks have and that is fastest over all of them, by task; none where no
/// setting but the default is common to all.
std::vector<std::size_t> fixed_choice(const std::vector<SampledTask>& tasks,
                                      const ReplayOptions& options) {
  std::map<std::string, std::pair<double, std::vector<std::size_t>>> sums;  // ln(us), arms
  for (const SampledTask& task : tasks) {
    const ActionSpace& space = *task.search.task.space;
    for (std::size_t a = 0; a < task.arm_us.size(); ++a) {
      const auto seen = launches_of(task.arm_us[a], 0, options.parts);
      if (seen.empty()) continue;
      auto& [sum, arms] = sums[space.text(space.arms()[a])];
      sum += std::log(median(seen));
      arms.push_back(a);
    }
  }
  std::erase_if(sums, [&](const auto& one) { return one.second.second.size() != tasks.size(); });
  const auto best = std::min_element(sums.begin(), sums.end(), [](const auto& a, const auto& b) {
    return a.second.first < b.second.first;
  });
  return best == sums.end() ? std::vector<std::size_t>(tasks.size(), 0) : best->second.second;
}

ReplayScore score_fixed(const std::vector<SampledTask>& tasks, const std::vector<Judged>& judged,
                        const ReplayOptions& options) {
  ReplayScore score;
  score.agent = kBestFixed;
  score.seeds = options.seeds;
  score.evaluations_to_95 = INFINITY;
  score.reached_95 = NAN;  // no search comes nearer and nearer to it
  const std::vector<std::size_t> arms = fixed_choice(tasks, options);
  SeedScore seed;
  double saved = 0;
  double possible = 0;
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const double ratio = judged[t].score_us[arms[t]] / judged[t].score_us[0];
    score.worst_ratio = std::max(score.worst_ratio, ratio);
    if (ratio > 1 + judged[t].band) ++seed.slower;
    for (const auto& arm : tasks[t].arm_us)
      seed.evaluations += static_cast<int>(launches_of(arm, 0, options.parts).size());
    if (!judged[t].worth) continue;
    ++score.tasks;
    score.oracle_log_faster += judged[t].log_faster(judged[t].oracle);
    seed.log_faster += judged[t].log_faster(arms[t]);
    saved += judged[t].saved(arms[t]);
    possible += judged[t].saved(judged[t].oracle);
  }
  score.evaluations = seed.evaluations;
  score.share_of_exhaustive = 1;
  score.gain_share = score.gain_share_lowest = possible > 0 ? saved / possible : NAN;
  score.slower = seed.slower * options.seeds;
  score.choices.assign(static_cast<std::size_t>(options.seeds), arms);
  score.by_seed.assign(static_cast<std::size_t>(options.seeds), seed);
  return score;
}

std::vector<Judged> judge_all(const std::vector<SampledTask>& tasks, const ReplayOptions& options) {
  std::vector<Judged> judged;
  for (const SampledTask& task : tasks) judged.push_back(judge_task(task, options));
  return judged;
}

}  // namespace

std::vector<Oracle> oracles(const std::vector<SampledTask>& tasks, const ReplayOptions& options) {
  std::vector<Oracle> found;
  for (const Judged& judged : judge_all(tasks, options))
    found.push_back({judged.oracle, judged.worth});
  return found;
}

std::vector<ReplayScore> replay(const std::vector<SampledTask>& tasks, const ReplayOptions& options,
                                const std::function<void(const ReplayStep&)>& on_step) {
  const std::vector<Judged> judged = judge_all(tasks, options);
  const auto seeds = static_cast<std::size_t>(options.seeds);
  std::vector<std::vector<std::unique_ptr<Run>>> runs(options.agents.size());
  for (std::size_t a = 0; a < runs.size(); ++a)
    for (int seed = 0; seed < options.seeds; ++seed)
      runs[a].push_back(std::make_unique<Run>(tasks, judged, options, options.agents[a], seed));
  std::mutex telling;
  const auto tell = [&](const ReplayStep& step) {
    const std::lock_guard lock(telling);
    on_step(step);
  };
  on_all_processors(runs.size() * seeds, [&](std::size_t i) {
    runs[i / seeds][i % seeds]->go(on_step ? tell : std::function<void(const ReplayStep&)>());
  });
  std::vector<ReplayScore> scores;
  for (std::size_t a = 0; a < runs.size(); ++a)
    scores.push_back(score_agent(tasks, judged, options, options.agents[a], runs[a]));
  if (options.best_fixed) scores.push_back(score_fixed(tasks, judged, options));
  return scores;
}

}  // namespace dynamiccl
