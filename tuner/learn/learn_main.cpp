#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "tuner/learn/search_score.hpp"
#include "tuner/learn/trainer.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

struct LearnOptions {
  std::string out = "ppo.policy";
  std::string report;  ///< folder
  int seeds = 5;
  int updates = 40;  ///< per curriculum stage
  int jobs = 48;
  int held_out = 64;               ///< episodes and regimes per held-out stage
  int columns = 0;                 ///< of the state that the policy sees; 0: all
  std::optional<Backend> without;  ///< the backend that trains nothing and judges alone
};

/// Every library once: a backend that is another one's with GPU memory is no world of its own.
const std::vector<Backend> kBackends = [] {
  std::vector<Backend> backends;
  for (const BackendFacts& row : kBackendFacts)
    if (row.library == row.backend) backends.push_back(row.backend);
  return backends;
}();

constexpr const char* kHelp =
    "usage: dynamiccl-learn [--out FILE] [--report FOLDER] [--seeds N] [--updates N] [--jobs N]\n"
    "                       [--held-out N] [--columns N] [--without BACKEND]\n"
    "Trains the recurrent PPO policy on the simulator in three curriculum stages, once per seed,\n"
    "and keeps the seed with the highest mean reward on validation regimes. The files are written\n"
    "after every seed.\n"
    "  --out FILE       the policy (ppo.policy)\n"
    "  --report FOLDER  curves.csv (learning curves), held_out.csv (comparison with the other\n"
    "                   agents on regimes that never trained), and seed-N.policy of every seed\n"
    "  --seeds N        independent trainings (5)\n"
    "  --updates N      PPO updates per stage (40)\n"
    "  --jobs N         simulated jobs side by side (48)\n"
    "  --held-out N     episodes and regimes per stage of the comparison (64)\n"
    "  --columns N      a smaller policy: of the state's features those that fit into so many\n"
    "                   columns, what the cluster is before what job and library are (all)\n"
    "  --without BACKEND  train on the other backends' spaces and compare on this one's alone: "
    "does\n"
    "                   the policy transfer to a library that it never saw?\n";

// Regimes are drawn from the generator's seed: these never train.
constexpr std::uint64_t kHeldOutSeed = 0x5eed0000;
constexpr std::uint64_t kValidationSeed = 0x7a11d000;

SimulatorOptions stage_options(int stage) {
  SimulatorOptions options;
  options.stage = static_cast<CurriculumStage>(stage);
  return options;
}

/// All stages, each with as many episodes.
SimScore score(const SimCatalog& catalog, const AgentMaker& make, int episodes,
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

AgentMaker maker(const std::string& name) {
  return [name](std::uint64_t seed) {
    AgentOptions options;
    options.seed = seed;
    return make_agent(name, options);
  };
}

AgentMaker maker(const Policy& policy) {
  return [policy](std::uint64_t seed) -> std::unique_ptr<Agent> {
    AgentOptions options;
    options.seed = seed;
    return std::make_unique<PolicyAgent>(policy, options, BeliefOptions{});
  };
}

/// A row of held_out.csv.
json compare(const SimCatalog& catalog, const std::string& agent, const AgentMaker& make,
             int episodes) {
  const SimScore reward = score(catalog, make, episodes, kHeldOutSeed);
  const SearchScore search =
      search_in_simulator(make, catalog, CurriculumStage::third, episodes, kHeldOutSeed);
  fmt::print(stderr, "{:20} mean reward {:8.4f}, evaluations to 95 % {:5.1f}\n", agent,
             reward.mean_reward, search.evaluations_to_95);
  return {{"agent", agent},
          {"mean_reward", reward.mean_reward},
          {"final_regret_percent", 100 * reward.final_regret},
          {"search_tasks", search.tasks},
          {"evaluations_to_95", search.evaluations_to_95},
          {"reached_95_percent", 100 * search.reached_95},
          {"evaluations", search.evaluations},
          {"gain_percent_of_oracle", 100 * search.gain_share}};
}

struct Trained {
  Policy policy;
  json curve = json::array();
  double validation = 0;
};

Trained train(const SimCatalog& catalog, const LearnOptions& options, int seed) {
  Trained trained;
  trained.policy = untrained_policy(static_cast<std::uint64_t>(seed), options.columns);
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
      trained.curve.push_back({{"seed", seed},
                               {"stage", stage},
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
  if (options.without) trained.policy.provenance["without"] = name_of(*options.without);
  trained.validation =
      score(catalog, maker(trained.policy), options.held_out / 2, kValidationSeed).mean_reward;
  return trained;
}

std::string csv(const json& rows, const std::vector<std::string>& columns) {
  std::string text = fmt::format("{}\n", fmt::join(columns, ","));
  for (const json& row : rows)
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const json& value = row.at(columns[c]);
      text += value.is_string()           ? value.get<std::string>()
              : value.is_number_integer() ? value.dump()
                                          : fmt::format("{:.6g}", value.get<double>());
      text += c + 1 == columns.size() ? '\n' : ',';
    }
  return text;
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.flush();
  if (!file)
    throw Error(ErrorKind::environment,
                path + ": cannot be written; is the folder there and not full?");
}

/// What is wrong with them the first file there says.
void make_folders(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
}

void write_report(const std::string& folder, const json& curves, const json& held_out) {
  write_text(folder + "/curves.csv", csv(curves, {"seed", "stage", "steps", "mean_reward",
                                                  "entropy", "divergence", "value_loss"}));
  write_text(folder + "/held_out.csv",
             csv(held_out, {"agent", "mean_reward", "final_regret_percent", "search_tasks",
                            "evaluations_to_95", "reached_95_percent", "evaluations",
                            "gain_percent_of_oracle"}));
}

/// What the policy file says of its training, for reports: steps and mean reward by seed, and the
/// comparison on held-out regimes.
void describe(Policy& policy, const json& curves, const json& held_out) {
  json by_seed = json::object();
  for (const json& point : curves) {
    json& points = by_seed[fmt::format("{}", point["seed"].get<int>())];
    points.push_back({point["steps"], std::round(point["mean_reward"].get<double>() * 1e4) / 1e4});
  }
  policy.provenance["curves"] = by_seed;
  policy.provenance["held_out"] = held_out;
}

/// The backends that train (`judged` false) or are compared on.
std::vector<Backend> backends_of(const LearnOptions& options, bool judged) {
  if (!options.without) return {};
  if (judged) return {*options.without};
  std::vector<Backend> others;
  for (const Backend backend : kBackends)
    if (backend != *options.without) others.push_back(backend);
  return others;
}

Backend backend_to_leave_out(const std::string& name, std::string_view option) {
  std::vector<std::string> known;
  for (const Backend backend : kBackends) {
    known.emplace_back(name_of(backend));
    if (known.back() == name) return backend;
  }
  throw Error(ErrorKind::input,
              fmt::format("{} \"{}\": {}", option, name, suggestion(name, known)));
}

int learn(const LearnOptions& options) {
  const SimCatalog training(backends_of(options, false));
  const SimCatalog catalog(backends_of(options, true));
  json others = json::array();
  for (const char* agent : {"default", "random", "coordinate-descent", "bandit"})
    others.push_back(compare(catalog, agent, maker(agent), options.held_out));
  if (const std::string shipped = shipped_policy(); !shipped.empty())
    others.push_back(
        compare(catalog, "ppo shipped", maker(read_policy(shipped)), options.held_out));
  others.push_back(compare(catalog, "ppo-untrained", maker(untrained_policy(1)), options.held_out));
  json curves = json::array();
  json seeds = json::array();
  std::optional<Trained> best;
  if (!options.report.empty()) make_folders(options.report);
  for (int seed = 1; seed <= options.seeds; ++seed) {
    Trained trained = train(training, options, seed);
    for (json& point : trained.curve) curves.push_back(point);
    seeds.push_back(compare(catalog, fmt::format("ppo seed {}", seed), maker(trained.policy),
                            options.held_out));
    // Validation regimes order seeds by simulated reward; which searches measured settings best is
    // for scripts/agents_report.sh to say, of all of them.
    if (!options.report.empty())
      write_policy(trained.policy, fmt::format("{}/seed-{}.policy", options.report, seed));
    if (!best || trained.validation > best->validation) best = std::move(trained);
    json held_out = others;
    for (const json& row : seeds) held_out.push_back(row);
    Policy kept = best->policy;
    describe(kept, curves, held_out);
    write_policy(kept, options.out);
    if (!options.report.empty()) write_report(options.report, curves, held_out);
  }
  fmt::print("kept seed {}, policy {}, in {}\n", best->policy.provenance["seed"].get<int>(),
             best->policy.version(), options.out);
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
    } else if (name == "--report") {
      options.report = value;
    } else if (name == "--seeds") {
      options.seeds = number(value, name);
    } else if (name == "--updates") {
      options.updates = number(value, name);
    } else if (name == "--jobs") {
      options.jobs = number(value, name);
    } else if (name == "--columns") {
      options.columns = number(value, name);
    } else if (name == "--without") {
      options.without = backend_to_leave_out(value, name);
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
    return error.kind() == dynamiccl::ErrorKind::input || error.kind() == dynamiccl::ErrorKind::data
               ? 2
               : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "dynamiccl-learn: {}\n", error.what());
    return 1;
  }
}
