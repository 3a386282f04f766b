#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <thread>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "tuner/learn/training.hpp"
#include "tuner/state/features.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

struct LearnOptions {
  std::string out = "ppo.policy";
  std::string report;  ///< folder
  int seeds = 5;
  int updates = 40;                ///< per curriculum stage
  int jobs = 48;                   ///< searches of an update
  int held_out = 64;               ///< places per stage of the comparison
  std::string ablate;              ///< a policy that is judged; "": one is trained
  int columns = 0;                 ///< of the state that the policy sees; 0: all
  std::optional<Backend> without;  ///< the backend that trains nothing and judges alone
  /// Of each seed's training.
  [[nodiscard]] unsigned threads() const {
    return std::max(1U, std::thread::hardware_concurrency() / static_cast<unsigned>(seeds));
  }
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
    "                       [--held-out N] [--columns N] [--without BACKEND] [--ablate FILE]\n"
    "Trains the recurrent PPO policy in three curriculum stages, once per seed: it searches\n"
    "simulated places whose times are the analytic models of `dynamiccl predict`, with a budget\n"
    "of 1, 2 or 4 looks a cell, and is rewarded by how near the best its choices end. Kept is the\n"
    "seed with the lowest mean regret on validation places. All seeds train at once, on all "
    "cores;\n"
    "the files are written when the first one is done, and again with each further one.\n"
    "  --out FILE       the policy (ppo.policy)\n"
    "  --report FOLDER  curves.csv (learning curves), held_out.csv (comparison with the other\n"
    "                   agents on places that never trained), ablation.csv (what the kept\n"
    "                   policy tries first there without each feature of the state), and\n"
    "                   seed-N.policy of every seed, written every 5 updates of its training and\n"
    "                   after the last\n"
    "  --ablate FILE    train nothing: print ablation.csv of this policy\n"
    "  --seeds N        independent trainings (5)\n"
    "  --updates N      PPO updates per stage (40)\n"
    "  --jobs N         searches of an update (48)\n"
    "  --held-out N     places per stage of the comparison (64)\n"
    "  --columns N      a smaller policy: of the state's features those that fit into so many\n"
    "                   columns, what the cluster is before what job and library are (all)\n"
    "  --without BACKEND  train on the other backends' spaces and compare on this one's alone: "
    "does\n"
    "                   the policy transfer to a library that it never saw?\n";

// Places are drawn from the generator's seed: these never train (more in training.cpp).
constexpr std::uint64_t kHeldOutSeed = 0x5eed0000;

AgentMaker maker(const std::string& name) {
  return [name](std::uint64_t seed) {
    AgentOptions options;
    options.seed = seed;
    return make_agent(name, options);
  };
}

unsigned every_core() { return std::max(1U, std::thread::hardware_concurrency()); }

/// A row of held_out.csv.
json compare(const std::vector<SimPlace>& places, const std::string& agent, const AgentMaker& make,
             const ContextEffect& context = {}) {
  const SimScore score = score_in_simulator(make, places, kHeldOutSeed, every_core());
  fmt::print(stderr, "{:20} regret at {} looks a cell: {::.3f}; of the default {:.3f}\n", agent,
             fmt::join(kBudgets, ", "), score.regret, score.default_regret);
  json row{{"agent", agent}, {"places", places.size()}, {"default_regret", score.default_regret}};
  for (std::size_t k = 0; k < kBudgets.size(); ++k)
    row[fmt::format("regret_{}", kBudgets[k])] = score.regret[k];
  row["changed_by_context"] = context.changed;
  row["worth_of_context"] = context.worth;
  return row;
}

/// Rows of curves.csv.
json curve_of(const Trained& trained) {
  json rows = json::array();
  for (const TrainingRow& row : trained.curve)
    rows.push_back({{"seed", trained.policy.provenance.at("seed")},
                    {"stage", row.stage},
                    {"steps", row.steps},
                    {"final_regret", row.final_regret},
                    {"changed_by_context", row.context.changed},
                    {"worth_of_context", row.context.worth},
                    {"entropy", row.report.entropy},
                    {"divergence", row.report.divergence},
                    {"value_loss", row.report.value_loss}});
  return rows;
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

/// What each feature of the state is worth to a policy.
std::string ablation(const Policy& policy, const std::vector<SimPlace>& places) {
  json rows = json::array();
  for (const FeatureEffect& effect : feature_effects(policy, places, every_core()))
    rows.push_back({{"without", effect.feature},
                    {"known", effect.known},
                    {"changed", effect.changed},
                    {"worth", effect.worth},
                    {"error", effect.error}});
  return csv(rows, {"without", "known", "changed", "worth", "error"});
}

void write_report(const std::string& folder, const json& curves, const json& held_out) {
  write_text(folder + "/curves.csv",
             csv(curves, {"seed", "stage", "steps", "final_regret", "changed_by_context",
                          "worth_of_context", "entropy", "divergence", "value_loss"}));
  write_text(folder + "/held_out.csv",
             csv(held_out, {"agent", "places", "default_regret", "regret_1", "regret_2", "regret_4",
                            "changed_by_context", "worth_of_context"}));
}

/// What the policy file says of its training, for reports: steps and regret by seed, and the
/// comparison on held-out places.
void describe(Policy& policy, const json& curves, const json& held_out) {
  json by_seed = json::object();
  for (const json& point : curves) {
    json& points = by_seed[fmt::format("{}", point["seed"].get<int>())];
    points.push_back({point["steps"], std::round(point["final_regret"].get<double>() * 1e4) / 1e4});
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
  const SimCatalog judged(backends_of(options, true));
  const std::vector<SimPlace> places = draw_places(judged, options.held_out, kHeldOutSeed);
  json others = json::array();
  const auto judge = [&](const std::string& name, const Policy& policy) {
    return compare(places, name, policy_maker(policy),
                   context_effect(policy, places, every_core()));
  };
  for (const char* agent : {"default", "prior", "random", "coordinate-descent", "means", "bandit"})
    others.push_back(compare(places, agent, maker(agent)));
  if (const std::string shipped = shipped_policy(); !shipped.empty())
    others.push_back(judge("ppo shipped", read_policy(shipped)));
  others.push_back(judge("ppo-untrained", untrained_policy(1)));
  json curves = json::array();
  json seeds = json::array();
  std::optional<Trained> best;
  if (!options.report.empty()) make_folders(options.report);
  const auto keep = [&](const Policy& policy) {
    if (options.report.empty()) return;
    const int seed = policy.provenance.at("seed");
    write_policy(policy, fmt::format("{}/seed-{}.policy", options.report, seed));
  };
  const TrainingOptions how{.updates = options.updates,
                            .jobs = options.jobs,
                            .held_out = options.held_out,
                            .columns = options.columns,
                            .threads = options.threads(),
                            .provenance = options.without
                                              ? json{{"without", name_of(*options.without)}}
                                              : json::object()};
  std::vector<std::future<Trained>> trainings;
  for (int seed = 1; seed <= options.seeds; ++seed)
    trainings.push_back(
        std::async(std::launch::async, [&, seed] { return train(training, how, seed, keep); }));
  for (int seed = 1; seed <= options.seeds; ++seed) {
    Trained trained = trainings[static_cast<std::size_t>(seed - 1)].get();
    for (const json& point : curve_of(trained)) curves.push_back(point);
    seeds.push_back(judge(fmt::format("ppo seed {}", seed), trained.policy));
    // Validation places order seeds by simulated regret; which searches measured settings best is
    // for scripts/agents_report.sh to say, of all of them.
    if (!best || trained.validation < best->validation) best = std::move(trained);
    json held_out = others;
    for (const json& row : seeds) held_out.push_back(row);
    Policy kept = best->policy;
    describe(kept, curves, held_out);
    write_policy(kept, options.out);
    if (!options.report.empty()) write_report(options.report, curves, held_out);
  }
  if (!options.report.empty())
    write_text(options.report + "/ablation.csv", ablation(best->policy, places));
  fmt::print("kept seed {}, policy {}, in {}\n", best->policy.provenance["seed"].get<int>(),
             best->policy.version(), options.out);
  return 0;
}

int ablate(const LearnOptions& options) {
  const SimCatalog judged(backends_of(options, true));
  fmt::print("{}", ablation(read_policy(options.ablate),
                            draw_places(judged, options.held_out, kHeldOutSeed)));
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
    } else if (name == "--ablate") {
      options.ablate = value;
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
    const dynamiccl::LearnOptions options = dynamiccl::parse(arguments);
    return options.ablate.empty() ? dynamiccl::learn(options) : dynamiccl::ablate(options);
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
