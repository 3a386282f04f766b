// Do the agents find the fastest of SMPI's algorithms on machines that nobody here has? Lets them
// search what scripts/simulated_arms.py simulated, every cell (machine, ranks, size) with all
// algorithms as settings; the default is the better of Open MPI's and MPICH's own choice. One time
// of each setting: a simulation repeats bit for bit.
//
//   simulated_search ARMS.csv [AGENT...]
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "tuner/search/replay.hpp"
#include "tuner/state/state_from_regime.hpp"

using namespace dynamiccl;

namespace {

/// Times of the algorithms by their names; machine, ranks, bytes.
using SimulatedCells =
    std::map<std::tuple<std::string, int, std::uint64_t>, std::map<std::string, double>>;

template <class Number>
Number number_in(const std::string& word, const std::string& line) {
  Number number{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size())
    throw Error(ErrorKind::input, "no row of simulated_arms.py: " + line);
  return number;
}

SimulatedCells read_arms(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorKind::input, path + ": cannot be read");
  SimulatedCells cells;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    const auto words = split(line, ',');
    if (words.size() < 5) throw Error(ErrorKind::input, "no row of simulated_arms.py: " + line);
    auto& cell =
        cells[{words[0], number_in<int>(words[1], line), number_in<std::uint64_t>(words[2], line)}];
    if (!words[4].empty()) cell[words[3]] = number_in<double>(words[4], line);
  }
  return cells;
}

SampledTask task_of(const SimulatedCells::value_type& entry) {
  const auto& [machine, ranks, bytes] = entry.first;
  std::map<std::string, double> times = entry.second;
  const bool mpich =
      !times.contains("ompi") || (times.contains("mpich") && times.at("mpich") < times.at("ompi"));
  const std::string usual = mpich ? "mpich" : "ompi";
  SampledTask task;
  task.arm_us = {{times.at(usual)}};
  times.erase(usual);
  Knob knob{.name = "algorithm",
            .role = KnobRole::implementation,
            .scope = KnobScope::call,
            .target = "algorithm",
            .values = {"default"}};
  for (const auto& [algorithm, us] : times) {
    knob.values.push_back(algorithm);
    task.arm_us.push_back({us});
  }
  for (auto& arm : task.arm_us) arm.resize(3, arm.front());
  task.search.size = Bytes{bytes};
  task.search.nodes = ranks;
  task.search.task.key = {machine,
                          {.collective = Collective::allreduce,
                           .bin = SizeBin::of(task.search.size),
                           .group_size = ranks,
                           .nodes = ranks,
                           .architecture = Architecture::ring,
                           .backend = Backend::openmpi}};
  task.search.task.space = std::make_shared<const ActionSpace>(
      "simulated", std::vector{knob}, [](const ActionSpace&, const Action&) { return true; });
  set_task(task.search.task.state, task.search.task.key.task, task.search.size, task.search.size);
  task.regime_id = machine;
  return task;
}

void search(const SimulatedCells& cells, const std::vector<std::string>& agents) {
  std::vector<SampledTask> tasks;
  std::size_t arms = 0;
  for (const auto& cell : cells) {
    tasks.push_back(task_of(cell));
    arms += tasks.back().arm_us.size();
  }
  ReplayOptions options;
  options.agents = agents;
  options.worth = 1.01;
  fmt::print(
      "{} cells, {} settings\n\n| agent | budget | evaluations | of exhaustive | gain of the "
      "oracle's | lowest seed | slower choices | worst time over the default's |\n"
      "|---|---|---|---|---|---|---|---|\n",
      tasks.size(), arms);
  for (const double budget : {0.05, 0.1, 0.15, 0.2, 0.25}) {
    options.evaluations = static_cast<int>(budget * static_cast<double>(arms));
    for (const ReplayScore& score : replay(tasks, options, nullptr))
      fmt::print(
          "| {} | {:.0f} % | {:.0f} | {:.1f} % | {:.1f} % | {:.1f} % | {} of {} | {:.3f} |\n",
          score.agent, 100 * budget, score.evaluations, 100 * score.share_of_exhaustive,
          100 * score.gain_share, 100 * score.gain_share_lowest, score.slower,
          score.seeds * static_cast<int>(tasks.size()), score.worst_ratio);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) throw Error(ErrorKind::input, "simulated_search ARMS.csv [AGENT...]");
  std::vector<std::string> agents(argv + 2, argv + argc);
  if (agents.empty()) agents = {"random", "means", "bandit"};
  search(read_arms(argv[1]), agents);
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
