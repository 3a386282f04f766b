#include "tuner/learn/training.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace dynamiccl {
namespace {

// Places are drawn from the generator's seed: these never train.
constexpr std::uint64_t kValidationSeed = 0x7a11d000;
constexpr std::uint64_t kCurveSeed = 0xc0e7e000;

constexpr int kWatchEvery = 5;  // updates: a row of the curve, and the policy so far

}  // namespace

std::vector<SimPlace> draw_places(const SimCatalog& catalog, int each, std::uint64_t seed) {
  FastRandom random(seed);
  std::vector<SimPlace> places;
  for (int stage = 1; stage <= 3; ++stage)
    for (int i = 0; i < each; ++i)
      places.push_back(draw_place(catalog, static_cast<CurriculumStage>(stage), random));
  return places;
}

AgentMaker policy_maker(const Policy& policy) {
  return [policy](std::uint64_t seed) -> std::unique_ptr<Agent> {
    AgentOptions options;
    options.seed = seed;
    return std::make_unique<PolicyAgent>(policy, options, BeliefOptions{});
  };
}

Trained train(const SimCatalog& catalog, const TrainingOptions& options, int seed,
              const std::function<void(const Policy&)>& keep) {
  Trained trained;
  trained.policy = untrained_policy(static_cast<std::uint64_t>(seed), options.columns);
  trained.policy.provenance = {{"seed", seed},
                               {"stages", {1, 2, 3}},
                               {"updates_per_stage", options.updates},
                               {"jobs", options.jobs}};
  trained.policy.provenance.update(options.provenance);
  PpoTrainer trainer(trained.policy, {}, static_cast<std::uint64_t>(seed));
  const std::vector<SimPlace> watched = draw_places(catalog, options.held_out / 2, kCurveSeed);
  FastRandom worlds(static_cast<std::uint64_t>(seed) * 7919);
  TrainingRow row;
  int summed = 0;  // updates since the last row
  for (int update = 1; update <= 3 * options.updates; ++update) {
    row.stage = 1 + (update - 1) / options.updates;
    std::vector<SimPlace> places;
    for (int job = 0; job < options.jobs; ++job)
      places.push_back(draw_place(catalog, static_cast<CurriculumStage>(row.stage), worlds));
    const Rollout rollout = collect(trained.policy, places, worlds(), options.threads);
    row.report = trainer.update(rollout);
    trained.policy.weights = trainer.weights();
    for (const Episode& episode : rollout.episodes)
      row.steps += static_cast<std::int64_t>(episode.size());
    row.final_regret += rollout.final_regret;
    ++summed;
    // A row is of one stage, and what is kept last is the policy that is judged.
    if (update % kWatchEvery != 0 && update % options.updates != 0) continue;
    row.final_regret /= summed;
    row.context = context_effect(trained.policy, watched, options.threads);
    trained.curve.push_back(row);
    fmt::print(stderr, "seed {}, update {}: regret at the end of searches {:.4f}\n", seed, update,
               row.final_regret);
    row.final_regret = 0;
    summed = 0;
    trained.policy.provenance["steps"] = row.steps;
    keep(trained.policy);
  }
  trained.validation =
      score_in_simulator(policy_maker(trained.policy),
                         draw_places(catalog, options.held_out / 2, kValidationSeed),
                         kValidationSeed, options.threads)
          .mean_regret();
  return trained;
}

}  // namespace dynamiccl
