#include "tuner/learn/rollout.hpp"

#include <atomic>
#include <cmath>
#include <future>
#include <numeric>

#include "core/statistics/statistics.hpp"
#include "tuner/state/features.hpp"

namespace dynamiccl {
namespace {

constexpr double kRewardScale = 10;  // regrets are tenths; what is learnt from is of the order of 1

/// Does `work` of every place. An error of one ends all.
void for_each_place(std::size_t places, unsigned threads,
                    const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  const auto some = [&] {
    for (std::size_t place = next++; place < places; place = next++) work(place);
  };
  std::vector<std::future<void>> others;
  for (unsigned other = 1; other < threads; ++other)
    others.push_back(std::async(std::launch::async, some));
  some();
  for (std::future<void>& other : others) other.get();
}

/// Mean over the cells of what is lost by what the agent recommends.
double regret_of(const Agent& agent, const SimPlace& place,
                 const std::vector<SearchTask>& searched) {
  double sum = 0;
  for (std::size_t c = 0; c < place.cells.size(); ++c)
    sum += place.cells[c].log_us[agent.recommend(searched[c].task)] - place.cells[c].best_log_us;
  return sum / static_cast<double>(place.cells.size());
}

/// Searches a place. @param seen the regret after each measurement
/// @returns the regret at the end
double search_place(Agent& agent, const SimPlace& place, int looks, std::uint64_t seed,
                    const std::function<void(double)>& seen) {
  FastRandom random(seed);
  std::vector<SearchTask> tasks;
  for (const SimCell& cell : place.cells) tasks.push_back(cell.search);
  SearchOptions options;
  options.in_flight = 1;
  options.max_evaluations = looks * static_cast<int>(tasks.size());
  const Evaluate evaluate = [&](const std::vector<Ask>& asks) {
    std::vector<Measured> results;
    for (const Ask& ask : asks) {
      results.emplace_back().trial = place.measure(place.cells[ask.task], ask.arm, random);
      results.back().calls = 1;
    }
    return results;
  };
  search(agent, tasks, evaluate, options, [&](const SearchStep&) {
    if (seen) seen(regret_of(agent, place, tasks));
  });
  return regret_of(agent, place, tasks);
}

/// What of a state is the place's and the job's, not the cell's.
State in_context(State cell, const State& context) {
  State state = context;
  state.collective = cell.collective;
  state.architecture = cell.architecture;
  state.nominal_size = cell.nominal_size;
  state.effective_size = cell.effective_size;
  state.group_size = cell.group_size;
  state.nodes = cell.nodes;
  state.library = cell.library;
  return state;
}

/// A policy's likeliest first setting of a cell: nothing was measured yet.
class FirstSetting {
 public:
  explicit FirstSetting(const Task& task)
      : space_(*task.space),
        fresh_(BeliefMemory{BeliefOptions{}, AgentOptions{}}.entry(task)),
        outlook_(outlook_of(TimeBelief(BeliefOptions{}).posterior(fresh_.view), fresh_.failed,
                            BeliefOptions{}.noise_sd, 0.8)) {}

  /// @param input as of policy_input()
  [[nodiscard]] std::size_t of(const PolicyNetwork& network, const Eigen::VectorXf& input) const {
    const ArmKnowledge known{outlook_, fresh_.failed, fresh_.tries, fresh_.view.prior};
    const Eigen::VectorXf hidden = network.advance(network.seen(input), network.initial_state());
    return walk_heads(network, hidden, space_, known, nullptr).arm;
  }

 private:
  const ActionSpace& space_;
  BeliefMemory::Entry fresh_;
  ArmOutlook outlook_;
};

/// Adds what a cell's first setting is worth against another one.
void add_effect(FeatureEffect& effect, const SimPlace& place, const SimCell& cell, std::size_t own,
                std::size_t other) {
  const auto cells = static_cast<double>(place.cells.size());
  effect.changed += (own != other ? 1 : 0) / cells;
  effect.worth += (cell.log_us[other] - cell.log_us[own]) / cells;
}

}  // namespace

Rollout collect(const Policy& policy, std::span<const SimPlace> places, std::uint64_t seed,
                unsigned threads) {
  struct Searched {
    Episode episode{};
    double regret = 0;
  };
  FastRandom random(seed);
  std::vector<std::uint64_t> seeds;
  for (std::size_t p = 0; p < places.size(); ++p) seeds.push_back(random());
  std::vector<Searched> searched(places.size());
  for_each_place(places.size(), threads, [&](std::size_t p) {
    FastRandom own(seeds[p]);
    AgentOptions options;
    options.seed = own();
    PolicyAgent agent(policy, options, BeliefOptions{});
    auto& [episode, regret] = searched[p];
    agent.record(&episode);
    const int looks = kBudgets[own.below(kBudgets.size())];
    std::vector<SearchTask> tasks;
    for (const SimCell& cell : places[p].cells) tasks.push_back(cell.search);
    double before = regret_of(agent, places[p], tasks);
    regret = search_place(agent, places[p], looks, own(), [&](double now) {
      episode.back().reward = static_cast<float>(kRewardScale * (before - now));
      before = now;
    });
  });
  Rollout rollout;
  for (auto& [episode, regret] : searched) {
    rollout.final_regret += regret / static_cast<double>(places.size());
    if (!episode.empty()) rollout.episodes.push_back(std::move(episode));
  }
  return rollout;
}

double SimScore::mean_regret() const {
  return std::accumulate(regret.begin(), regret.end(), 0.0) / static_cast<double>(regret.size());
}

SimScore score_in_simulator(const AgentMaker& make, std::span<const SimPlace> places,
                            std::uint64_t seed, unsigned threads) {
  FastRandom random(seed);
  SimScore score;
  const double weight = 1 / static_cast<double>(places.size());
  std::vector<std::uint64_t> seeds;  // the same launches for every agent
  for (const SimPlace& place : places) {
    for (const SimCell& cell : place.cells)
      score.default_regret +=
          weight * (cell.log_us[0] - cell.best_log_us) / static_cast<double>(place.cells.size());
    seeds.push_back(random());
  }
  std::vector<std::array<double, kBudgets.size()>> regrets(places.size());
  for_each_place(places.size(), threads, [&](std::size_t p) {
    for (std::size_t k = 0; k < kBudgets.size(); ++k)
      regrets[p][k] = search_place(*make(seeds[p]), places[p], kBudgets[k], seeds[p], {});
  });
  for (const auto& place : regrets)
    for (std::size_t k = 0; k < kBudgets.size(); ++k) score.regret[k] += weight * place[k];
  return score;
}

ContextEffect context_effect(const Policy& policy, std::span<const SimPlace> places,
                             unsigned threads) {
  const PolicyNetwork network = policy.network();
  std::vector<ContextEffect> effects(places.size());
  for_each_place(places.size(), threads, [&](std::size_t p) {
    const State& other = places[(p + 1) % places.size()].cells.front().search.task.state;
    for (const SimCell& cell : places[p].cells) {
      const Task& task = cell.search.task;
      const FirstSetting first(task);
      const std::size_t own = first.of(network, policy_input(task.state, {}));
      const std::size_t foreign =
          first.of(network, policy_input(in_context(task.state, other), {}));
      effects[p].changed += own != foreign ? 1 : 0;
      effects[p].worth += cell.log_us[foreign] - cell.log_us[own];
    }
  });
  ContextEffect effect;
  std::size_t cells = 0;
  for (std::size_t p = 0; p < places.size(); ++p) {
    effect.changed += effects[p].changed;
    effect.worth += effects[p].worth;
    cells += places[p].cells.size();
  }
  effect.changed /= static_cast<double>(cells);
  effect.worth /= static_cast<double>(cells);
  return effect;
}

std::vector<FeatureEffect> feature_effects(const Policy& policy, std::span<const SimPlace> places,
                                           unsigned threads) {
  const PolicyNetwork network = policy.network();
  std::vector<FeatureEffect> blank;
  for (const Feature& feature : feature_table())
    if (feature.source.in_policy) blank.push_back({.feature = feature.name});
  std::vector<std::vector<FeatureEffect>> effects(places.size(), blank);
  for_each_place(places.size(), threads, [&](std::size_t p) {
    for (const SimCell& cell : places[p].cells) {
      const Task& task = cell.search.task;
      const FirstSetting first(task);
      const Eigen::VectorXf input = policy_input(task.state, {});
      const std::size_t own = first.of(network, input);
      auto effect = effects[p].begin();
      Eigen::Index column = 0;
      for (const Feature& feature : feature_table()) {
        if (feature.source.in_policy) {
          Eigen::VectorXf less = input;
          less.segment(column, feature.width).setZero();
          effect->known +=
              (feature.known(task.state) ? 1 : 0) / static_cast<double>(places[p].cells.size());
          add_effect(*effect++, places[p], cell, own, first.of(network, less));
        }
        column += feature.width;
      }
    }
  });
  for (std::size_t f = 0; f < blank.size(); ++f) {
    std::vector<double> worth;
    for (const auto& place : effects) {
      blank[f].known += place[f].known / static_cast<double>(places.size());
      blank[f].changed += place[f].changed / static_cast<double>(places.size());
      worth.push_back(place[f].worth);
    }
    blank[f].worth = mean(worth);
    blank[f].error = standard_deviation(worth) / std::sqrt(static_cast<double>(worth.size()));
  }
  return blank;
}

}  // namespace dynamiccl
