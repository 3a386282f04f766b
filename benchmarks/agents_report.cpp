// Which agent searches best for how many looks? Lets every agent search stored measurements instead
// of launches: the same budget for all, in looks a cell, spent over all cells of an environment and
// a backend in any order, with as many seeds; prints one report (Markdown).
//
//   scripts/agents_report.sh                     unpacks what the repository stores and calls this
//   agents_report [--seeds N] [--slow-seeds N] [--looks LIST] [--against AGENT] [--agents LIST]
//                 [--rows FILE.csv] [--hold-out environment|machine|size] [--write-places FILE.tsv]
//                 [--every-cell] [--both-ways]
//                 {[--machine NAME] [--drawn | --searched] [--sweep EXPERIMENT DB RUN]... [--grid
//                 NAME DB]...}...
//
// EXPERIMENT is the file that `tune sweep` measured into DB as RUN (or "last"); NAME the
// experiment of an ordinary run over settings in DB. Databases of earlier versions are migrated in
// place: give copies. --slow-seeds are those of agents with a Gaussian process, the first ones of
// the others'. "+places" is an agent that starts from how settings stand in the other places
// (tuner/agents/places.hpp), as `tune` does; nothing of the environment that it searches is among
// them (--hold-out machine: nor anything of its machine, size: nor anything of a cell's own size).
// What was drawn from is printed. A cell counts where the oracle is 1.1 times faster on launches
// that it did not choose on, with --every-cell whatever it is: of two launches one says which cells
// count and scores, which flatters all. --both-ways searches each place once more with its launches
// in the other order: of two each is shown once and scores once. --machine says where the sweeps
// and grids behind it were measured, --drawn that those behind it are only drawn from;
// --write-places writes what ships with the program.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "benchmarks/grid_samples.hpp"
#include "benchmarks/other_agents.hpp"
#include "core/statistics/statistics.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "db/store.hpp"
#include "orchestrator/cli/verbs/experiment_arguments.hpp"
#include "orchestrator/experiment/tune_reader.hpp"
#include "orchestrator/tune/samples.hpp"
#include "reports/model/table_view.hpp"
#include "tuner/agents/kernel_means.hpp"
#include "tuner/agents/places.hpp"
#include "tuner/agents/policy_agent.hpp"
#include "tuner/agents/policy_file.hpp"

using namespace dynamiccl;

namespace {

struct Options {
  int seeds = 100;
  int slow_seeds = 20;
  std::vector<int> looks{0, 1, 2, 4, 8};
  std::string against = "means";
  std::vector<std::string> agents;
  struct Source {
    std::string experiment, database, run, machine;  ///< run: "" = a grid
    bool searched = true;
  };
  std::vector<Source> sources;
  std::string rows;
  std::string hold_out = "environment";
  std::string places;
  bool every_cell = false;
  bool both_ways = false;
};

/// Tasks that are searched together: of one backend in one environment.
struct Part {
  std::string name;
  std::string source;  ///< experiment
  std::string backend;
  std::string environment;
  std::string machine = {};
  bool searched = true;
  std::vector<SampledTask> tasks = {};
  std::set<std::string> drawn = {};  ///< places, by agents that start from others
  std::map<std::pair<std::string, int>, ReplayScore> scores = {};  ///< by agent and looks a cell

  [[nodiscard]] std::string place() const { return machine + ": " + environment; }
  [[nodiscard]] bool shared_memory() const { return environment != "cross-docker"; }
};

/// One part per environment and backend. @param environment by task
std::vector<Part> parts_of(const std::string& source, const std::vector<SampledTask>& tasks,
                           const std::vector<std::string>& environments) {
  std::vector<Part> parts;
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const std::string name = fmt::format(
        "{}: {}, {}", source, name_of(tasks[t].search.task.key.task.backend), environments[t]);
    auto part =
        std::find_if(parts.begin(), parts.end(), [&](const Part& one) { return one.name == name; });
    if (part == parts.end())
      part = parts.insert(
          parts.end(), Part{.name = name,
                            .source = source,
                            .backend = std::string(name_of(tasks[t].search.task.key.task.backend)),
                            .environment = environments[t]});
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
  return parts_of(loaded.experiment.name, tasks, environments);
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
    return one.name == part.name && one.machine == part.machine &&
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
  return parts_of(name, tasks, environments);
}

/// The same with its launches in the other order: what was shown scores.
Part turned(Part part) {
  part.name += ", launches turned";
  for (SampledTask& task : part.tasks)
    for (std::size_t a = 0; a < task.arm_us.size(); ++a) {
      std::reverse(task.arm_us[a].begin(), task.arm_us[a].end());
      std::reverse(task.arm_launch[a].begin(), task.arm_launch[a].end());
    }
  return part;
}

const std::string kPlaces = "+places";

/// Agents of the table; the second part of a name is what they start from.
std::vector<std::string> all_agents() {
  return {"random",        "coordinate-descent", "exhaustive", "dlib",         kMeans,
          "bandit",        "bandit-fitted",      kPpo,         "prior+places", kMeans + kPlaces,
          "bandit+places", kPpo + kPlaces};
}

bool is_slow(const std::string& agent) {
  return agent.starts_with("bandit") || agent.starts_with(kPpo);
}

/// What a part measured of its cells, on all launches.
std::vector<PlacedCell> placed_cells(const Part& part) {
  std::vector<PlacedCell> cells;
  for (const SampledTask& task : part.tasks) {
    PlacedCell cell{part.place(), part.shared_memory(), task.search.task.key.task, {}};
    const ActionSpace& space = *task.search.task.space;
    for (std::size_t a = 1; a < task.arm_us.size(); ++a)
      if (!task.arm_us[a].empty())
        cell.log_ratio[setting_key(space.setting(space.arms()[a]))] =
            std::log(median(task.arm_us[a]) / median(task.arm_us[0]));
    if (!cell.log_ratio.empty()) cells.push_back(std::move(cell));
  }
  return cells;
}

/// What a search in `held` may start from.
std::vector<PlacedCell> other_places(const Part& held, const std::vector<Part>& parts,
                                     const std::string& hold_out) {
  std::vector<PlacedCell> cells;
  for (const Part& part : parts) {
    if (part.backend != held.backend || part.place() == held.place()) continue;
    if (hold_out == "machine" && part.machine == held.machine) continue;
    const std::vector<PlacedCell> more = placed_cells(part);
    cells.insert(cells.end(), more.begin(), more.end());
  }
  return cells;
}

std::unique_ptr<Agent> agent_of(const std::string& name, const AgentOptions& options) {
  const std::string base = name.substr(0, name.find('+'));
  if (base == "bandit-fitted") return make_fitted_bandit(options);
  return base == "dlib" ? make_dlib_agent(options) : make_agent(base, options);
}

void search_part(Part& part, const std::vector<Part>& parts, const Options& options) {
  std::vector<SampledTask> ranked = part.tasks;
  const std::vector<PlacedCell> cells = other_places(part, parts, options.hold_out);
  for (SampledTask& task : ranked) {
    std::vector<PlacedCell> seen = cells;
    if (options.hold_out == "size")
      std::erase_if(seen, [&](const PlacedCell& cell) {
        return cell.key.bin == task.search.task.key.task.bin;
      });
    const PlaceRanking ranking = rank_by_places(task.search.task, part.shared_memory(), seen);
    if (start_from(task.search.task, ranking))
      part.drawn.insert(ranking.places.begin(), ranking.places.end());
  }
  for (const std::string& agent : options.agents)
    for (const int looks : options.looks) {
      const bool placed = agent.ends_with(kPlaces);
      if (placed && part.drawn.empty()) continue;
      ReplayOptions replayed;
      replayed.agents = {agent};
      replayed.seeds = is_slow(agent) ? std::min(options.seeds, options.slow_seeds) : options.seeds;
      replayed.evaluations = looks * static_cast<int>(part.tasks.size());
      replayed.agent.policy_path = shipped_policy();
      if (options.every_cell) replayed.worth = 0;
      replayed.make = agent_of;
      for (const SampledTask& task : part.tasks)
        replayed.parts = std::min(replayed.parts, task.arm_us[0].size());
      part.scores[{agent, looks}] = replay(placed ? ranked : part.tasks, replayed, nullptr).front();
      fmt::print(stderr, "{}: {}, {} looks a cell\n", part.name, agent, looks);
    }
}

/// Mean over seeds of a logarithm with its interval of 95 %, as a factor.
std::string factor_text(const std::vector<double>& logs) {
  const double centre = mean(logs);
  if (logs.size() < 2) return fmt::format("{:.3f}", std::exp(centre));
  const auto n = static_cast<double>(logs.size());
  const double reach = student_t_quantile(0.975, n - 1) * standard_deviation(logs) / std::sqrt(n);
  if (reach < 5e-4) return fmt::format("{:.3f}", std::exp(centre));
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", std::exp(centre), std::exp(centre - reach),
                     std::exp(centre + reach));
}

/// ln(time of the choices over the default's) by seed, mean over the cells that count of all parts;
/// empty where the agent did not search one of them.
std::vector<double> log_times(const std::vector<const Part*>& parts, const std::string& agent,
                              int looks) {
  std::vector<double> sums;
  int cells = 0;
  for (const Part* part : parts) {
    const auto found = part->scores.find({agent, looks});
    if (found == part->scores.end()) return {};
    const ReplayScore& score = found->second;
    cells += score.tasks;
    sums.resize(score.by_seed.size(), 0);
    for (std::size_t s = 0; s < sums.size(); ++s) sums[s] -= score.by_seed[s].log_faster;
  }
  for (double& sum : sums) sum /= std::max(1, cells);
  return sums;
}

double slower_of(const std::vector<const Part*>& parts, const std::string& agent, int looks) {
  double slower = 0;
  for (const Part* part : parts) {
    const ReplayScore& score = part->scores.at({agent, looks});
    slower += static_cast<double>(score.slower) / score.seeds;
  }
  return slower;
}

/// One cell of the tables: the agent's own times, or seed by seed over those of another.
std::string entry_of(const std::vector<const Part*>& parts, const std::string& agent, int looks,
                     const std::string& against) {
  std::vector<double> own = log_times(parts, agent, looks);
  if (against.empty()) return own.empty() ? "" : factor_text(own);
  const std::vector<double> other = log_times(parts, against, looks);
  if (own.empty() || other.empty()) return "";
  own.resize(std::min(own.size(), other.size()));
  for (std::size_t s = 0; s < own.size(); ++s) own[s] -= other[s];
  return factor_text(own);
}

void print_table(const std::vector<const Part*>& parts, const Options& options,
                 const std::string& against) {
  fmt::print("\n| agent | seeds |");
  for (const int looks : options.looks) fmt::print(" {} |", looks);
  if (against.empty()) fmt::print(" SLOWER a seed at {} |", options.looks.back());
  fmt::print("\n|---|---|{}\n", [&] {
    std::string line;
    for (std::size_t i = 0; i < options.looks.size() + (against.empty() ? 1 : 0); ++i)
      line += "---|";
    return line;
  }());
  for (const std::string& agent : options.agents) {
    const auto first = log_times(parts, agent, options.looks.front());
    if (first.empty() || agent == against) continue;
    fmt::print("| {} | {} |", agent, first.size());
    for (const int looks : options.looks)
      fmt::print(" {} |", entry_of(parts, agent, looks, against));
    if (against.empty()) fmt::print(" {:.1f} |", slower_of(parts, agent, options.looks.back()));
    fmt::print("\n");
  }
}

void print_parts(const std::string& title, const std::vector<const Part*>& parts,
                 const Options& options) {
  int counting = 0;
  std::size_t cells = 0;
  std::size_t settings = 0;
  double oracle = 0;
  for (const Part* part : parts) {
    const ReplayScore& any = part->scores.begin()->second;
    counting += any.tasks;
    oracle += any.oracle_log_faster;
    cells += part->tasks.size();
    for (const SampledTask& task : part->tasks) settings += task.arm_us.size();
  }
  fmt::print("\n## {}\n\n{} cells with {:.1f} settings each; {} cells count", title, cells,
             static_cast<double>(settings) / static_cast<double>(cells), counting);
  if (parts.size() == 1 && !parts[0]->drawn.empty())
    fmt::print(" (\"+places\" drew from {})",
               join({parts[0]->drawn.begin(), parts[0]->drawn.end()}, ", "));
  if (counting == 0) {
    fmt::print(".\n");
    return;
  }
  fmt::print(
      ", the oracle's choices take {:.3f} of the default's time. Time of the choices over "
      "the default's, by looks a cell:\n",
      std::exp(-oracle / counting));
  print_table(parts, options, "");
  fmt::print("\nOver the time of {}, seed by seed:\n", options.against);
  print_table(parts, options, options.against);
}

void print_report(const std::vector<Part>& parts, const Options& options) {
  std::vector<const Part*> all;
  std::map<std::string, std::vector<const Part*>> groups;
  for (const Part& part : parts) {
    all.push_back(&part);
    groups[fmt::format("{}: {}", part.source, part.backend)].push_back(&part);
  }
  print_parts("All searches together", all, options);
  for (const auto& [title, group] : groups)
    if (group.size() < all.size()) print_parts(title, group, options);
  for (const Part& part : parts) print_parts(part.name, {&part}, options);
}

std::string csv_rows(const std::vector<Part>& parts) {
  std::string text =
      "part,agent,looks,seed,tasks,oracle_log_faster,log_faster,slower,evaluations\n";
  for (const Part& part : parts)
    for (const auto& [key, score] : part.scores)
      for (std::size_t s = 0; s < score.by_seed.size(); ++s)
        text += fmt::format("\"{}\",{},{},{},{},{:.4f},{:.4f},{},{}\n", part.name, key.first,
                            key.second, s, score.tasks, score.oracle_log_faster,
                            score.by_seed[s].log_faster, score.by_seed[s].slower,
                            score.by_seed[s].evaluations);
  return text;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw Error(ErrorKind::input, path + ": cannot be written");
}

int number_of(const std::string& option, const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 0)
    throw Error(ErrorKind::input, option + " " + text + ": expected a whole number");
  return number;
}

std::vector<std::string> listed(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

Options parse(const std::vector<std::string>& words) {
  Options options;
  std::string machine = "here";
  bool searched = true;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& option = words[i];
    const auto value = [&] {
      if (++i >= words.size()) throw Error(ErrorKind::input, option + " needs a value");
      return words[i];
    };
    if (option == "--sweep") {
      const std::string file = value();
      const std::string db = value();
      options.sources.push_back({file, db, value(), machine, searched});
    } else if (option == "--grid") {
      const std::string name = value();
      options.sources.push_back({name, value(), "", machine, searched});
    } else if (option == "--drawn" || option == "--searched") {
      searched = option == "--searched";
    } else if (option == "--machine") {
      machine = value();
    } else if (option == "--hold-out") {
      options.hold_out = value();
      if (options.hold_out != "environment" && options.hold_out != "machine" &&
          options.hold_out != "size")
        throw Error(ErrorKind::input, "--hold-out: expected environment, machine or size");
    } else if (option == "--write-places") {
      options.places = value();
    } else if (option == "--both-ways") {
      options.both_ways = true;
    } else if (option == "--every-cell") {
      options.every_cell = true;
    } else if (option == "--agents") {
      options.agents = listed(value());
    } else if (option == "--looks") {
      options.looks.clear();
      for (const std::string& one : listed(value()))
        options.looks.push_back(number_of(option, one));
    } else if (option == "--rows") {
      options.rows = value();
    } else if (option == "--against") {
      options.against = value();
    } else if (option == "--seeds") {
      options.seeds = number_of(option, value());
    } else if (option == "--slow-seeds") {
      options.slow_seeds = number_of(option, value());
    } else {
      throw Error(ErrorKind::input, "unknown option " + option);
    }
  }
  if (options.sources.empty())
    throw Error(ErrorKind::input, "nothing to search: --sweep EXPERIMENT DB RUN, --grid NAME DB");
  if (options.agents.empty()) options.agents = all_agents();
  if (!make_dlib_agent({})) std::erase(options.agents, "dlib");
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse({argv + 1, argv + argc});
    std::vector<Part> parts;
    for (const auto& source : options.sources)
      for (Part& part : source.run.empty()
                            ? grid_parts(source.experiment, source.database)
                            : sweep_parts(source.experiment, source.database, source.run)) {
        part.machine = source.machine;
        part.searched = source.searched;
        if (options.both_ways) add_part(parts, turned(part));
        add_part(parts, std::move(part));
      }
    if (!options.places.empty()) {
      std::vector<PlacedCell> cells;
      for (const Part& part : parts) {
        const std::vector<PlacedCell> more = placed_cells(part);
        cells.insert(cells.end(), more.begin(), more.end());
      }
      write_file(options.places, places_text(cells));
    }
    for (Part& part : parts)
      if (part.searched) search_part(part, parts, options);
    std::erase_if(parts, [](const Part& part) { return !part.searched; });
    print_report(parts, options);
    if (!options.rows.empty()) write_file(options.rows, csv_rows(parts));
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "agents_report: {}\n", error.what());
    return error.kind() == ErrorKind::input ? 2 : 1;
  }
}
