// Which agent searches best? Lets every agent search stored measurements instead of launches, with
// as many seeds, and prints one report (Markdown) of all of them together and of each alone:
//
//   scripts/agents_report.sh                     unpacks what the repository stores and calls this
//   agents_report [--seeds N] [--policy NAME=FILE]... [--untrained N] [--rows FILE.csv]
//                 [--terms LIST]... [--sweep EXPERIMENT DB RUN]... [--grid NAME DB]...
//
// EXPERIMENT is the file that `tune --sweep` measured into DB as RUN (or "last"); NAME the
// experiment of an ordinary run over settings in DB. Databases of earlier versions are migrated in
// place: give copies.
// --policy adds the ppo agent with another policy file to the comparison, --untrained further
// random networks until there are N of them; trained networks are then held against untrained ones
// as two samples. --terms adds ppo and bandit with other terms of the search (tune --terms).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/error.hpp"
#include "db/store.hpp"
#include "orchestrator/cli/verbs/experiment_arguments.hpp"
#include "orchestrator/experiment/tune_reader.hpp"
#include "orchestrator/tune/agent_comparison.hpp"
#include "orchestrator/tune/grid_samples.hpp"
#include "orchestrator/tune/samples.hpp"
#include "reports/model/table_view.hpp"
#include "tuner/agents/policy_agent.hpp"
#include "tuner/policy/policy_file.hpp"

using namespace dynamiccl;

namespace {

struct Options {
  int seeds = 10;
  std::vector<std::pair<std::string, std::string>> policies;  ///< name, file
  std::vector<std::array<std::string, 3>> sweeps;             ///< experiment, database, run
  std::vector<std::pair<std::string, std::string>> grids;     ///< experiment's name, database
  std::vector<std::string> terms;                             ///< each a list
  int untrained = 1;                                          ///< random networks
  std::string rows;
};

/// Tasks that are searched together: of one backend in one environment.
struct Part {
  std::string name;
  std::vector<SampledTask> tasks;
  double budget = 0.25;
  std::vector<ReplayScore> scores;
};

/// One part per environment and backend. @param environment by task
std::vector<Part> parts_of(const std::string& source, const std::vector<SampledTask>& tasks,
                           const std::vector<std::string>& environments, double budget) {
  std::vector<Part> parts;
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const std::string name = fmt::format(
        "{}: {}, {}", source, name_of(tasks[t].search.task.key.task.backend), environments[t]);
    auto part =
        std::find_if(parts.begin(), parts.end(), [&](const Part& one) { return one.name == name; });
    if (part == parts.end()) part = parts.insert(parts.end(), Part{name, {}, budget, {}});
    part->tasks.push_back(tasks[t]);
  }
  return parts;
}

/// The keys that the run was given on its command line, as scripts/tune_sweep.sh gives each place
/// its cores. Which cells it kept to is no key.
std::vector<std::string> overrides_of(const Reader& reader, const std::string& run) {
  const Table table = reader.query(
      "SELECT o.value AS key FROM run r JOIN experiment e ON e.id = r.experiment_id, "
      "json_each(e.overrides_json) o "
      "WHERE r.uuid = ?1 AND o.value NOT LIKE 'only=%' AND o.value NOT LIKE 'tune=%'",
      {run});
  std::vector<std::string> keys;
  for (std::size_t row = 0; row < table.rows.size(); ++row)
    keys.push_back(TableView(table).text(row, "key"));
  return keys;
}

std::vector<Part> sweep_parts(const std::string& experiment, const std::string& db,
                              const std::string& name) {
  { const Store migrated(db); }
  const Reader reader(db);
  const std::string run = reader.resolve_run(name);
  ExperimentArguments arguments;
  arguments.file = experiment;
  arguments.overrides = overrides_of(reader, run);
  const LoadedExperiment loaded = load_experiment_of_anywhere(arguments);
  TuneOptions options = tune_options_of(loaded.experiment);
  options.huge_pages = measured_huge_pages(reader, run);
  options.own = false;
  TunePlan plan = make_tune_plan(loaded.experiment, loaded.plan, options);
  const std::vector<SampledTask> tasks = load_samples(reader, plan, run);
  std::vector<std::string> environments;
  for (const TuneTask& task : plan.tasks) environments.push_back(task.environment);
  return parts_of(loaded.experiment.name, tasks, environments, options.budget);
}

/// The largest number of a launch.
std::int64_t last_launch(const std::vector<SampledTask>& tasks) {
  std::int64_t last = 0;
  for (const SampledTask& task : tasks)
    for (const auto& launches : task.arm_launch)
      for (const std::int64_t launch : launches) last = std::max(last, launch);
  return last;
}

/// Adds a sweep's part, to that of its name where one is of other collectives: a sweep that was cut
/// by collective is searched whole.
void add_part(std::vector<Part>& parts, Part part) {
  const auto searches = [](const Part& one, const SampledTask& task) {
    return std::any_of(one.tasks.begin(), one.tasks.end(), [&](const SampledTask& other) {
      return other.search.task.key.task.collective == task.search.task.key.task.collective;
    });
  };
  const auto same = std::find_if(parts.begin(), parts.end(), [&](const Part& one) {
    return one.name == part.name &&
           std::none_of(part.tasks.begin(), part.tasks.end(),
                        [&](const SampledTask& task) { return searches(one, task); });
  });
  if (same == parts.end()) return parts.push_back(std::move(part));
  // Databases number their launches by themselves, and one launch disturbs all that it measures.
  const std::int64_t before = last_launch(same->tasks);
  for (SampledTask& task : part.tasks) {
    for (auto& launches : task.arm_launch)
      for (std::int64_t& launch : launches) launch += before;
    same->tasks.push_back(std::move(task));
  }
}

std::vector<Part> grid_parts(const std::string& name, const std::string& db) {
  { const Store migrated(db); }
  const Reader reader(db);
  const std::vector<SampledTask> tasks = load_grid(reader, find_run(reader, name));
  std::vector<std::string> environments;
  for (const SampledTask& task : tasks) environments.push_back(task.search.task.key.regime);
  return parts_of(name, tasks, environments, 0.25);
}

const std::vector<std::string> kCandidates{kPpo,     kOnlinePpo,           kUntrainedPpo,
                                           "bandit", "coordinate-descent", "random"};

/// The random networks by name; the first is the agent of that name.
std::string random_name(int network) {
  return network == 1 ? kUntrainedPpo : fmt::format("{}-{}", kUntrainedPpo, network);
}

/// The file of a random network, which goes with the program.
std::string random_policy(int network) {
  static const struct Folder {
    std::string path = (std::filesystem::temp_directory_path() / "networks-XXXXXX").string();
    Folder() {
      if (mkdtemp(path.data()) == nullptr)
        throw Error(ErrorKind::environment, path + ": cannot be made");
    }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } folder;
  std::string file = fmt::format("{}/{}.policy", folder.path, network);
  write_policy(untrained_policy(static_cast<std::uint64_t>(network)), file);
  return file;
}

void search_part(Part& part, const Options& options) {
  ReplayOptions replayed;
  replayed.agents = kCandidates;
  replayed.agents.emplace_back("exhaustive");
  replayed.seeds = options.seeds;
  replayed.budget = part.budget;
  replayed.agent.policy_path = shipped_policy();
  for (const SampledTask& task : part.tasks)
    replayed.parts = std::min(replayed.parts, task.arm_us[0].size());
  part.scores = replay(part.tasks, replayed, nullptr);
  replayed.agents = {kPpo, "bandit"};
  for (const std::string& terms : options.terms) {
    replayed.agent.terms = parse_terms(terms);
    for (ReplayScore& score : replay(part.tasks, replayed, nullptr)) {
      score.agent += "+" + terms;
      part.scores.push_back(std::move(score));
    }
  }
  replayed.agent.terms = default_terms();
  replayed.agents = {kPpo};
  for (const auto& [name, file] : options.policies) {
    replayed.agent.policy_path = file;
    part.scores.push_back(replay(part.tasks, replayed, nullptr).front());
    part.scores.back().agent = name;
  }
  for (int network = 2; network <= options.untrained; ++network) {
    replayed.agent.policy_path = random_policy(network);
    part.scores.push_back(replay(part.tasks, replayed, nullptr).front());
    part.scores.back().agent = random_name(network);
  }
}

std::string csv_rows(const std::vector<Part>& parts) {
  std::string text =
      "part,agent,seed,tasks,oracle_log_faster,log_faster,slower,evaluations,to_95\n";
  for (const Part& part : parts)
    for (const ReplayScore& score : part.scores)
      for (std::size_t s = 0; s < score.by_seed.size(); ++s) {
        const SeedScore& seed = score.by_seed[s];
        text += fmt::format("\"{}\",{},{},{},{:.4f},{:.4f},{},{},{}\n", part.name, score.agent, s,
                            score.tasks, score.oracle_log_faster, seed.log_faster, seed.slower,
                            seed.evaluations,
                            seed.to_95.empty() || !std::isfinite(median(seed.to_95))
                                ? ""
                                : fmt::format("{}", median(seed.to_95)));
      }
  return text;
}

void print_report(const std::vector<Part>& parts, const Options& options) {
  std::vector<std::string> candidates = kCandidates;
  for (const std::string& terms : options.terms)
    for (const char* agent : {kPpo, "bandit"}) candidates.push_back(agent + ("+" + terms));
  for (const auto& [name, file] : options.policies) candidates.push_back(name);
  std::vector<std::vector<ReplayScore>> all;
  for (const Part& part : parts) all.push_back(part.scores);
  const AgentComparison together = compare_agents(all, candidates);
  fmt::print(
      "## All searches together\n\n{} cells count, {} seeds; the oracle's choices take {:.3f} of "
      "the default's time.\n\n{}\n**Best: {}**\n",
      together.tasks, together.seeds, together.oracle_time, comparison_markdown(together),
      together.best.empty() ? "none: no cell counts" : together.best);
  for (const Part& part : parts) {
    const AgentComparison one = compare_agents({part.scores}, candidates);
    std::size_t settings = 0;
    for (const SampledTask& task : part.tasks) settings += task.arm_us.size();
    fmt::print("\n### {}\n\n{} cells with {} settings, {} launches of each; {} cells count",
               part.name, part.tasks.size(), settings, part.tasks.front().arm_us[0].size(),
               one.tasks);
    if (one.tasks == 0) {
      fmt::print(". Slower choices a seed:");
      for (const ReplayScore& score : part.scores)
        fmt::print(" {} {:.1f}", score.agent, static_cast<double>(score.slower) / score.seeds);
      fmt::print("\n");
      continue;
    }
    fmt::print("; the oracle's choices take {:.3f}.\n\n{}\nBest here: {}\n", one.oracle_time,
               comparison_markdown(one), one.best);
  }
}

std::string ratio_text(const SeedFigure& figure) {
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", figure.value, figure.low, figure.high);
}

std::string answer_text(BarAnswer answer, const char* reached, const char* missed) {
  return answer == BarAnswer::reached  ? reached
         : answer == BarAnswer::missed ? missed
                                       : "not told apart";
}

/// What ppo is held to, each by one figure with its interval.
void print_bars(const std::string& name, const std::vector<std::vector<ReplayScore>>& parts) {
  const AgentPair descent = compare_pair(parts, kPpo, "coordinate-descent");
  const AgentPair bandit = compare_pair(parts, kPpo, "bandit");
  const AgentPair untrained = compare_pair(parts, kPpo, kUntrainedPpo);
  const auto told = [](const SeedFigure& figure, double at_most, const char* reached,
                       const char* missed) {
    return fmt::format("{} ({})", ratio_text(figure),
                       answer_text(answer_of(figure, at_most), reached, missed));
  };
  fmt::print("| {} | {} | {} | {} | {} |\n", name,
             descent.to_95 ? told(*descent.to_95, 0.5, "at most half", "more than half")
                           : "no figure: one of them never gets there in half of the cells",
             told(descent.time, 1, "ahead", "behind"), told(bandit.time, 1, "ahead", "behind"),
             told(untrained.time, 1, "training adds", "training takes away"));
}

/// Trained networks and random ones, as two samples.
void print_networks(const std::string& name, const std::vector<std::vector<ReplayScore>>& parts,
                    const Options& options) {
  std::vector<std::string> trained{kPpo};
  for (const auto& [policy, file] : options.policies) trained.push_back(policy);
  std::vector<std::string> untrained;
  for (int network = 1; network <= options.untrained; ++network)
    untrained.push_back(random_name(network));
  const SeedFigure apart = compare_groups(parts, trained, untrained);
  fmt::print("| {} | {} | {} | {} ({}) |\n", name,
             ratio_text(compare_group(parts, trained, "bandit")),
             ratio_text(compare_group(parts, untrained, "bandit")), ratio_text(apart),
             answer_text(answer_of(apart, 1), "training adds", "training takes away"));
}

/// Of all parts together and of each in which some cell counts.
template <class Print>
void print_each(const std::vector<Part>& parts, Print&& print) {
  std::vector<std::vector<ReplayScore>> all;
  for (const Part& part : parts)
    if (part.scores.front().tasks > 0) all.push_back(part.scores);
  if (all.empty()) return;
  print("all", all);
  for (const Part& part : parts)
    if (part.scores.front().tasks > 0)
      print(part.name, std::vector<std::vector<ReplayScore>>{part.scores});
}

void print_held_to(const std::vector<Part>& parts, const Options& options) {
  fmt::print(
      "\n## What ppo is held to, seed by seed\n\nIts own figure over the other agent's, below 1 is "
      "better; intervals of 95 % over {} seeds (of evaluations: between the second lowest and the "
      "second highest seed).\n\n| search | evaluations to 95 %, coordinate descent's | time, "
      "coordinate descent's | time, bandit's | time, the untrained network's |\n"
      "|---|---|---|---|---|\n",
      options.seeds);
  print_each(parts, print_bars);
  if (options.policies.empty() || options.untrained < 2) return;
  fmt::print(
      "\n## Trained networks against random ones\n\n{} networks that were trained, {} that were "
      "not; all propose to the same belief. Time of their choices, intervals of 95 % over "
      "networks.\n\n| search | trained, the bandit's | untrained, the bandit's | trained, the "
      "untrained's |\n|---|---|---|---|\n",
      options.policies.size() + 1, options.untrained);
  print_each(parts,
             [&](const std::string& name, const auto& of) { print_networks(name, of, options); });
}

const ReplayScore& score_of(const Part& part, const std::string& agent) {
  return *std::find_if(part.scores.begin(), part.scores.end(),
                       [&](const ReplayScore& score) { return score.agent == agent; });
}

/// Each list of terms against the same agent as shipped, seed by seed: what it does to the choices'
/// time, to slower choices and to evaluations, with intervals of 95 %.
void print_terms(const std::vector<Part>& parts, const Options& options) {
  if (options.terms.empty()) return;
  fmt::print(
      "\n## Terms of the search, each against the same agent as shipped\n\n"
      "| search | agent and terms | time of as shipped | SLOWER choices a seed, more | "
      "evaluations, "
      "more |\n|---|---|---|---|---|\n");
  const auto print = [&](const std::string& name, std::span<const Part> of) {
    for (const std::string& terms : options.terms)
      for (const char* agent : {kPpo, "bandit"}) {
        std::vector<double> log_time(static_cast<std::size_t>(options.seeds), 0);
        std::vector<double> slower = log_time;
        std::vector<double> evaluations = log_time;
        int tasks = 0;
        for (const Part& part : of) {
          const ReplayScore& base = score_of(part, agent);
          const ReplayScore& with = score_of(part, agent + ("+" + terms));
          tasks += base.tasks;
          for (std::size_t s = 0; s < log_time.size(); ++s) {
            log_time[s] += base.by_seed[s].log_faster - with.by_seed[s].log_faster;
            slower[s] += with.by_seed[s].slower - base.by_seed[s].slower;
            evaluations[s] += with.by_seed[s].evaluations - base.by_seed[s].evaluations;
          }
        }
        for (double& one : log_time) one /= std::max(1, tasks);
        const auto figure = [](const std::vector<double>& values, auto&& shown) {
          const double centre = mean(values);
          const auto n = static_cast<double>(values.size());
          const double reach =
              student_t_quantile(0.975, n - 1) * standard_deviation(values) / std::sqrt(n);
          return fmt::format("{:.3f} [{:.3f}, {:.3f}]", shown(centre), shown(centre - reach),
                             shown(centre + reach));
        };
        const auto plain = [](double x) { return x; };
        fmt::print("| {} | {} + {} | {} | {} | {} |\n", name, agent, terms,
                   figure(log_time, [](double x) { return std::exp(x); }), figure(slower, plain),
                   figure(evaluations, plain));
      }
  };
  print("all", parts);
  for (const Part& part : parts) print(part.name, {&part, 1});
}

int above_one(const std::string& option, const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 2)
    throw Error(ErrorKind::input, option + " " + text + ": expected a whole number above 1");
  return number;
}

Options parse(const std::vector<std::string>& words) {
  Options options;
  const auto value = [&](std::size_t i) {
    if (i >= words.size()) throw Error(ErrorKind::input, words.back() + " needs a value");
    return words[i];
  };
  for (std::size_t i = 0; i < words.size();) {
    if (words[i] == "--sweep") {
      options.sweeps.push_back({value(i + 1), value(i + 2), value(i + 3)});
      i += 4;
    } else if (words[i] == "--grid") {
      options.grids.emplace_back(value(i + 1), value(i + 2));
      i += 3;
    } else if (words[i] == "--policy") {
      const std::string both = value(i + 1);
      const auto equals = both.find('=');
      if (equals == std::string::npos)
        throw Error(ErrorKind::input, "--policy " + both + ": expected NAME=FILE");
      options.policies.emplace_back(both.substr(0, equals), both.substr(equals + 1));
      i += 2;
    } else if (words[i] == "--terms") {
      options.terms.push_back(value(i + 1));
      parse_terms(options.terms.back());
      i += 2;
    } else if (words[i] == "--rows") {
      options.rows = value(i + 1);
      i += 2;
    } else if (words[i] == "--seeds") {
      options.seeds = above_one(words[i], value(i + 1));
      i += 2;
    } else if (words[i] == "--untrained") {
      options.untrained = above_one(words[i], value(i + 1));
      i += 2;
    } else {
      throw Error(ErrorKind::input, "unknown option " + words[i]);
    }
  }
  if (options.sweeps.empty() && options.grids.empty())
    throw Error(ErrorKind::input, "nothing to search: --sweep EXPERIMENT DB RUN, --grid NAME DB");
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse({argv + 1, argv + argc});
    std::vector<Part> parts;
    for (const auto& [experiment, db, run] : options.sweeps)
      for (Part& part : sweep_parts(experiment, db, run)) add_part(parts, std::move(part));
    for (const auto& [name, db] : options.grids)
      for (Part& part : grid_parts(name, db)) parts.push_back(std::move(part));
    for (Part& part : parts) search_part(part, options);
    print_report(parts, options);
    print_held_to(parts, options);
    print_terms(parts, options);
    if (!options.rows.empty()) {
      std::ofstream file(options.rows);
      file << csv_rows(parts);
      file.close();
      if (!file) throw Error(ErrorKind::input, options.rows + ": cannot be written");
    }
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "agents_report: {}\n", error.what());
    return error.kind() == ErrorKind::input ? 2 : 1;
  }
}
