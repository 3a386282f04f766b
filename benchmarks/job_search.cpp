// How many launches a search of launch settings needs: agents search the stored grid of a job, as
// `dynamiccl tune -- COMMAND` searches the job itself, each a thousand times with another seed.
// Every arm answers with the step that was measured of it; arms without one are left out.
//
//   dynamiccl tune --db DB --agent exhaustive --call-agent none --launches 60 -- COMMAND
//   job_search DB [CORES [SHARE [NOISE [LAUNCHES]]]]
//
// Instead of DB a file FILE.tsv: lines of a setting's name, a tab and microseconds, as
// scripts/gpu_job_grid.sh leaves them. CORES of the machine (32) and the SHARE of the default's
// step that collectives took (0.99) are what the prior is made of. Two ranks of one machine that
// NCCL sends through sockets. Then what `tune` does with it: of LAUNCHES (11) at most what is
// best is confirmed in pairs, whose launches differ by NOISE (0.1, of ln(step)) from the stored
// step; with one look at six pairs and two later, and with the looks of now. Seconds are those of a
// job that starts in 15 s, launches of 15 steps, and with those that cannot win cut after three.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/statistics/fast_random.hpp"
#include "core/statistics/statistics.hpp"
#include "core/vocabulary/error.hpp"
#include "db/reader.hpp"
#include "orchestrator/tune/job/job_tuning.hpp"
#include "tuner/job/launch_agent.hpp"
#include "tuner/job/launch_space.hpp"

using namespace dynamiccl;

namespace {

constexpr int kOrders = 1000;

struct Grid {
  Task task;
  std::map<std::size_t, double> step_us;  ///< by arm
  double best_us = 0;
};

/// Medians by setting.
std::map<std::string, double> listed_steps(const std::string& path) {
  std::map<std::string, std::vector<double>> times;
  std::ifstream file(path);
  if (!file) throw Error(ErrorKind::input, path + ": cannot be read");
  for (std::string line; std::getline(file, line);)
    if (const auto tab = line.find('\t'); tab != std::string::npos)
      times[line.substr(0, tab)].push_back(std::strtod(line.c_str() + tab + 1, nullptr));
  std::map<std::string, double> steps;
  for (const auto& [setting, us] : times) steps[setting] = median(us);
  return steps;
}

std::map<std::string, double> stored_steps(const std::string& path) {
  if (path.ends_with(".tsv")) return listed_steps(path);
  Reader db(path);
  const Table rows = db.query(
      // One search alone: the last one; others may have been of another job.
      "SELECT arm, time_us FROM decision WHERE task_key LIKE '%/job/step/%' AND kind <> 'final' "
      "AND time_us IS NOT NULL AND tuning_id = (SELECT max(tuning_id) FROM decision "
      "WHERE task_key LIKE '%/job/step/%') ORDER BY id",
      {});
  std::map<std::string, double> steps;
  for (const auto& row : rows.rows)
    steps.emplace(std::get<std::string>(row.at(0)), std::get<double>(row.at(1)));
  return steps;
}

Grid grid_of(const std::map<std::string, double>& steps, int cores, double share) {
  JobFacts facts;
  facts.ranks = facts.ranks_per_host = 2;
  facts.cores = cores;
  facts.network = true;
  std::vector<std::string> left_out;
  Grid grid;
  grid.task.space =
      std::make_shared<const ActionSpace>(launch_space(facts, JobConstraints{}, {}, left_out));
  const ActionSpace& space = *grid.task.space;
  for (std::size_t arm = 0; arm < space.arms().size(); ++arm) {
    std::string text = arm == 0 ? "default" : space.text(space.arms()[arm]);
    if (text.starts_with("library ")) text.erase(0, 8);
    if (const auto found = steps.find(text); found != steps.end())
      grid.step_us[arm] = found->second;
  }
  if (!grid.step_us.contains(0) || grid.step_us.size() < 2)
    throw Error(ErrorKind::input, "the database holds no search of launch settings");
  grid.best_us =
      std::min_element(grid.step_us.begin(), grid.step_us.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->second;
  if (!(grid.best_us < grid.step_us.at(0)))
    throw Error(ErrorKind::input, "no stored setting is faster than the default: nothing to find");
  grid.task.key.task = {Collective::allreduce, SizeBin{25},  2, 1,
                        Architecture::ring,    Backend::nccl};
  grid.task.prior_log_us = launch_prior(space, facts, Micros(grid.step_us[0]), share);
  return grid;
}

/// Launches until one had this part of the grid's gain; all arms' number and one when none had.
struct Search {
  int to_95 = 0;
  int to_99 = 0;
  int launches = 0;
  double gain = 0;  ///< of the arm kept at the end, as a part of the grid's
  // With as many launches as `tune` has.
  int searched = 0;
  double kept_us = 0;
  double whole_s = 0;  ///< of the search, all launches to their end
  double cut_s = 0;    ///< the same with cut ones
};

constexpr double kStartUs = 15e6, kWarmup = 3, kSteps = 12, kCut = 3, kHopeless = 1.1;

/// One more launch of the search.
void add_launch(Search& seen, double us) {
  const bool cut = seen.searched > 0 && us >= kHopeless * seen.kept_us;
  seen.whole_s += (kStartUs + (kWarmup + kSteps) * us) / 1e6;
  seen.cut_s += (kStartUs + (kWarmup + (cut ? kCut : kSteps)) * us) / 1e6;
  seen.kept_us = seen.searched == 0 ? us : std::min(seen.kept_us, us);
  ++seen.searched;
}

/// Launches of the pairs that say whether it is kept.
int launches_of_pairs(double kept_us, double default_us, double noise, const ConfirmationRule& rule,
                      std::uint64_t seed) {
  FastRandom random(seed);
  std::vector<PairedTime> pairs;
  while (kept_us < default_us && is_open(pairs, rule))
    pairs.push_back({kept_us * std::exp(noise * random.normal()),
                     default_us * std::exp(noise * random.normal())});
  return 2 * static_cast<int>(pairs.size());
}

Search search(const Grid& grid, const std::string& name, std::uint64_t seed, int tuned) {
  AgentOptions options;
  options.seed = seed;
  const auto agent = launch_agent(name, options);
  Task task = grid.task;
  task.prior_trust = kLaunchPriorTrust;
  TaskLoop loop(*agent);
  ArmHistory history(task.space->arms().size());
  const double default_us = grid.step_us.at(0);
  const double whole = default_us - grid.best_us;
  const auto learn = [&](std::size_t arm, const Trial& trial) {
    history.add(arm, trial);
    loop.put({arm, 1, false});
    loop.observe(task, trial, std::nullopt);
  };
  for (std::size_t arm = 0; arm < task.space->arms().size(); ++arm)
    if (!grid.step_us.contains(arm)) {
      history.add(arm, {false, Micros(0)});
      agent->learn(task, arm, {false, Micros(0)});
    }
  learn(0, {true, Micros(default_us)});
  const int most = static_cast<int>(grid.step_us.size());
  Search seen{.to_95 = most + 1, .to_99 = most + 1, .launches = 1};
  add_launch(seen, default_us);
  while (seen.launches < most) {
    const auto choice = next_launch(loop, task, history);
    if (!choice || !grid.step_us.contains(choice->arm)) break;
    const double us = grid.step_us.at(choice->arm);
    learn(choice->arm, {true, Micros(us)});
    ++seen.launches;
    if (seen.launches <= tuned) add_launch(seen, us);
    const double gain = (default_us - us) / whole;
    if (gain >= 0.95) seen.to_95 = std::min(seen.to_95, seen.launches);
    if (gain >= 0.99) seen.to_99 = std::min(seen.to_99, seen.launches);
  }
  seen.gain = (default_us - grid.step_us.at(history.best().value_or(0))) / whole;
  return seen;
}

void report(const Grid& grid, const std::string& agent, double noise, int tuned) {
  constexpr ConfirmationRule kBefore{6, 3, 0.982, 0.02};
  std::vector<double> to_95, to_99, launches, gains, before, now, whole_s, cut_s;
  int within = 0, best = 0;
  for (int order = 1; order <= kOrders; ++order) {
    const auto seed = static_cast<std::uint64_t>(order);
    const Search seen = search(grid, agent, seed, tuned);
    to_95.push_back(seen.to_95);
    to_99.push_back(seen.to_99);
    launches.push_back(seen.launches);
    gains.push_back(seen.gain);
    within += seen.to_95 <= 11 ? 1 : 0;
    best += seen.kept_us <= 1.01 * grid.best_us ? 1 : 0;
    const auto with_pairs = [&](const ConfirmationRule& rule) {
      return seen.searched + launches_of_pairs(seen.kept_us, grid.step_us.at(0), noise, rule, seed);
    };
    before.push_back(with_pairs(kBefore));
    now.push_back(with_pairs(JobTuningOptions{}.confirmation));
    whole_s.push_back(seen.whole_s);
    cut_s.push_back(seen.cut_s);
  }
  fmt::print("{:<20} {:>6.1f} {:>6.1f} {:>7.1f} % {:>8.1f} {:>7.1f} % {:>7.1f} %", agent,
             median(to_95), median(to_99), 100.0 * within / kOrders, median(launches),
             100 * median(gains), 100 * *std::min_element(gains.begin(), gains.end()));
  fmt::print(" {:>7.1f} % {:>7.1f} {:>6.1f} {:>7.0f} {:>6.0f}\n", 100.0 * best / kOrders,
             mean(before), mean(now), mean(whole_s), mean(cut_s));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2)
    throw Error(ErrorKind::input, "usage: job_search DB [CORES [SHARE [NOISE [LAUNCHES]]]]");
  const Grid grid = grid_of(stored_steps(argv[1]), argc > 2 ? std::atoi(argv[2]) : 32,
                            argc > 3 ? std::atof(argv[3]) : 0.99);
  fmt::print("{} settings, default {:.1f} ms, best {:.1f} ms; {} searches per agent\n",
             grid.step_us.size(), grid.step_us.at(0) / 1e3, grid.best_us / 1e3, kOrders);
  fmt::print("{:<20} {:>6} {:>6} {:>9} {:>8} {:>9} {:>9} {:>9} {:>7} {:>6} {:>7} {:>6}\n",
             "launches until", "95 %", "99 %", "95 by 11", "to end", "kept", "at least",
             "1 % by 11", "all, 6+", "now", "whole s", "cut s");
  for (const std::string agent :
       {"bandit", "means", "ppo", "coordinate-descent", "random", "exhaustive"})
    report(grid, agent, argc > 4 ? std::atof(argv[4]) : 0.1,
           argc > 5 ? std::atoi(argv[5]) : JobTuningOptions{}.launches);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "job_search: {}\n", error.what());
  return 2;
}
