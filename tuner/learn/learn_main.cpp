#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/statistics.hpp"
#include "core/text.hpp"
#include "tuner/learn/trainer.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

struct LearnOptions {
  std::string out = "ppo.policy";
  std::string curves;
  int seeds = 5;
  int updates = 40;  ///< per curriculum stage
  int jobs = 48;
  int held_out = 64;  ///< episodes per held-out stage
};

constexpr const char* kHelp =
    "usage: dynamiccl-learn [--out FILE] [--curves FILE] [--seeds N] [--updates N] [--jobs N]\n"
    "Trains the recurrent PPO policy on the simulator in three curriculum stages, once per seed,\n"
    "and keeps the seed with the highest mean reward on validation regimes.\n"
    "  --out FILE      the policy (ppo.policy)\n"
    "  --curves FILE   JSON with the learning curves and the comparison on held-out regimes\n"
    "  --seeds N       independent trainings (5)\n"
    "  --updates N     PPO updates per stage (40)\n"
    "  --jobs N        simulated jobs side by side (48)\n"
    "  --held-out N    episodes per stage of the comparison (64)\n";

// Regimes are drawn from the generator's seed: these never train.
constexpr std::uint64_t kHeldOutSeed = 0x5eed0000;
constexpr std::uint64_t kValidationSeed = 0x7a11d000;

SimulatorOptions stage_options(int stage) {
  SimulatorOptions options;
  options.stage = static_cast<CurriculumStage>(stage);
  return options;
}

/// All stages, each with as many episodes.
SimScore score(const SimCatalog& catalog,
               const std::function<std::unique_ptr<Agent>(std::uint64_t)>& make, int episodes,
               std::uint64_t seed) {
  SimScore sum;
  for (int stage = 1; stage <= 3; ++stage) {
    VectorSimulator simulator(catalog, stage_options(stage), static_cast<std::size_t>(episodes),
                              seed + static_cast<std::uint64_t>(stage));
    const SimScore one = score_in_simulator(make, simulator, 1, seed);
    sum.mean_reward += one.mean_reward / 3;
    sum.final_regret += one.final_regret / 3;
    sum.evaluations += one.evaluations / 3;
  }
  return sum;
}

std::function<std::unique_ptr<Agent>(std::uint64_t)> maker(const std::string& name) {
  return [name](std::uint64_t seed) {
    AgentOptions options;
    options.seed = seed;
    return make_agent(name, options);
  };
}

std::function<std::unique_ptr<Agent>(std::uint64_t)> maker(const Policy& policy) {
  return [policy](std::uint64_t seed) -> std::unique_ptr<Agent> {
    AgentOptions options;
    options.seed = seed;
    return std::make_unique<PolicyAgent>(policy, options, BeliefOptions{});
  };
}

struct Trained {
  Policy policy;
  json curve = json::array();
  double validation = 0;
};

Trained train(const SimCatalog& catalog, const LearnOptions& options, int seed) {
  Trained trained;
  trained.policy = untrained_policy(static_cast<std::uint64_t>(seed));
  PpoTrainer trainer(trained.policy, {}, static_cast<std::uint64_t>(seed));
  std::int64_t steps = 0;
  for (int stage = 1; stage <= 3; ++stage) {
    VectorSimulator simulator(catalog, stage_options(stage), static_cast<std::size_t>(options.jobs),
                              static_cast<std::uint64_t>(1000 * seed + stage));
    for (int update = 0; update < options.updates; ++update) {
      trained.policy.weights = trainer.weights();
      const Rollout rollout =
          collect(trained.policy.network(), simulator, 1,
                  static_cast<std::uint64_t>(seed) * 7919 + static_cast<std::uint64_t>(update));
      const PpoReport report = trainer.update(rollout);
      const SimulatorOptions& shape = stage_options(stage);
      steps +=
          static_cast<std::int64_t>(options.jobs) * shape.tasks_per_episode * shape.steps_per_task;
      trained.curve.push_back({{"stage", stage},
                               {"steps", steps},
                               {"mean_reward", rollout.mean_reward},
                               {"entropy", report.entropy},
                               {"divergence", report.divergence},
                               {"value_loss", report.value_loss}});
    }
    fmt::print(stderr, "seed {}, stage {}: mean reward {:.4f}\n", seed, stage,
               trained.curve.back()["mean_reward"].get<double>());
  }
  trained.policy.weights = trainer.weights();
  trained.policy.provenance = {{"seed", seed},
                               {"steps", steps},
                               {"stages", {1, 2, 3}},
                               {"updates_per_stage", options.updates},
                               {"jobs", options.jobs}};
  trained.validation =
      score(catalog, maker(trained.policy), options.held_out / 2, kValidationSeed).mean_reward;
  return trained;
}

json score_json(const std::string& agent, const SimScore& score) {
  return {{"agent", agent},
          {"mean_reward", score.mean_reward},
          {"final_regret", score.final_regret},
          {"evaluations_per_task", score.evaluations}};
}

int learn(const LearnOptions& options) {
  const SimCatalog catalog;
  const auto began = std::chrono::steady_clock::now();
  json report = {{"seeds", json::array()}, {"held_out", json::array()}};
  std::optional<Trained> best;
  for (int seed = 1; seed <= options.seeds; ++seed) {
    Trained trained = train(catalog, options, seed);
    const SimScore held_out = score(catalog, maker(trained.policy), options.held_out, kHeldOutSeed);
    json one = score_json("ppo", held_out);
    one["seed"] = seed;
    one["curve"] = trained.curve;
    one["validation_reward"] = trained.validation;
    one["policy"] = trained.policy.version();
    report["seeds"].push_back(one);
    if (!best || trained.validation > best->validation) best = std::move(trained);
  }
  report["held_out"].push_back(
      score_json("ppo", score(catalog, maker(best->policy), options.held_out, kHeldOutSeed)));
  report["held_out"].push_back(score_json(
      "ppo-untrained", score(catalog, maker(untrained_policy(1)), options.held_out, kHeldOutSeed)));
  for (const char* agent : {"bandit", "coordinate-descent", "random", "default"})
    report["held_out"].push_back(
        score_json(agent, score(catalog, maker(agent), options.held_out, kHeldOutSeed)));
  report["policy"] = best->policy.version();
  report["wall_s"] =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  best->policy.provenance["held_out"] = report["held_out"];
  write_policy(best->policy, options.out);
  if (!options.curves.empty()) {
    std::ofstream file(options.curves);
    file << report.dump(1) << "\n";
    if (!file)
      throw Error(ErrorKind::environment, options.curves + ": the curves cannot be written");
  }
  for (const json& row : report["held_out"])
    fmt::print("{:20} mean reward {:8.4f}  regret {:6.2f} %  evaluations per task {:5.2f}\n",
               row["agent"].get<std::string>(), row["mean_reward"].get<double>(),
               100 * row["final_regret"].get<double>(), row["evaluations_per_task"].get<double>());
  return 0;
}

int number(std::string_view text, std::string_view option) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1)
    throw Error(ErrorKind::input,
                fmt::format("{} \"{}\": expected a whole number above 0", option, text));
  return value;
}

LearnOptions parse(const std::vector<std::string>& arguments) {
  LearnOptions options;
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    const std::string& name = arguments[i];
    if (i + 1 == arguments.size())
      throw Error(ErrorKind::input, fmt::format("{} needs a value\n{}", name, kHelp));
    const std::string& value = arguments[i + 1];
    if (name == "--out") {
      options.out = value;
    } else if (name == "--curves") {
      options.curves = value;
    } else if (name == "--seeds") {
      options.seeds = number(value, name);
    } else if (name == "--updates") {
      options.updates = number(value, name);
    } else if (name == "--jobs") {
      options.jobs = number(value, name);
    } else if (name == "--held-out") {
      options.held_out = std::max(2, number(value, name));
    } else {
      throw Error(ErrorKind::input, fmt::format("unknown option {}\n{}", name, kHelp));
    }
  }
  return options;
}

}  // namespace
}  // namespace dynamiccl

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    fmt::print("{}", dynamiccl::kHelp);
    return 0;
  }
  try {
    return dynamiccl::learn(dynamiccl::parse(arguments));
  } catch (const dynamiccl::Error& error) {
    fmt::print(stderr, "dynamiccl-learn: {}\n", error.what());
    return error.kind() == dynamiccl::ErrorKind::input ? 2 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "dynamiccl-learn: {}\n", error.what());
    return 1;
  }
}
