// Do the agents find the fastest of SMPI's algorithms on machines that nobody here has? Lets them
// search what scripts/simulated_arms.py simulated, every cell (machine, ranks, size) with all
// algorithms as settings; the default is the better of Open MPI's and MPICH's own choice. One time
// of each setting: a simulation repeats bit for bit. Agents search twice: expecting nothing
// before they look, and what the analytic models say of the same machine.
//
//   simulated_search ARMS.csv [AGENT...]
#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/machine_model.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/launch/smpi.hpp"
#include "tuner/agents/fastest_measured.hpp"
#include "tuner/agents/kernel_means.hpp"
#include "tuner/search/replay.hpp"
#include "tuner/simulator/machine_cost.hpp"
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

/// What scripts/simulated_arms.py describes to SimGrid: links of 12.5 GB/s and 1 us, two to a
/// switch.
struct SimulatedShape {
  std::string_view machine;
  int ranks;
  MachineShape shape;
  std::vector<int> counts;
  std::vector<int> up;
  std::vector<int> cables;
};

MachineModel machine_of(const std::string& name, int ranks) {
  using enum MachineShape;
  static const std::vector<SimulatedShape> shapes{
      {"fat-tree", 64, fat_tree, {8, 8}, {1, 4}, {1, 2}},
      {"fat-tree", 256, fat_tree, {16, 16}, {1, 8}, {1, 2}},
      {"torus", 64, torus, {4, 4, 4}, {}, {}},
      {"torus", 256, torus, {8, 8, 4}, {}, {}},
      {"dragonfly", 64, dragonfly, {4, 2, 4, 2}, {}, {2, 2, 1}},
      {"dragonfly", 256, dragonfly, {4, 4, 4, 4}, {}, {2, 2, 1}}};
  for (const SimulatedShape& one : shapes) {
    if (one.machine != name || one.ranks != ranks) continue;
    MachineModel machine;
    machine.nodes = ranks;
    machine.shape = one.shape;
    machine.counts = one.counts;
    machine.up = one.up;
    machine.cables = one.cables;
    machine.links[1].classes = {{0, one.shape == torus ? 1.0 : 2.0, 12500}};
    return machine;
  }
  throw Error(ErrorKind::input, "no machine of simulated_arms.py: " + name);
}

/// By arm, the default first: the model that describes it.
std::vector<std::string_view> models_of(const std::vector<std::string>& arms) {
  std::vector<std::string_view> models(arms.size(), "");
  for (const SmpiAlgorithm& algorithm : smpi_algorithms(Collective::allreduce))
    for (std::size_t i = 1; i < arms.size(); ++i)
      if (arms[i] == algorithm.name) models[i] = algorithm.model;
  return models;
}

SampledTask task_of(const SimulatedCells::value_type& entry, bool with_models) {
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
  std::vector<std::string> arms{"default of a library"};
  for (const auto& [algorithm, us] : times) {
    arms.push_back(algorithm);
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
  if (with_models) {
    task.search.task.prior_log_us =
        expected_log_us(predict_collective(machine_of(machine, ranks), Collective::allreduce, ranks,
                                           static_cast<double>(bytes)),
                        models_of(arms));
    task.search.task.prior_trust = 1;
  }
  task.regime_id = machine;
  return task;
}

constexpr const char* kFastestMeasured = "means, fastest measured";

void search(const SimulatedCells& cells, const std::vector<std::string>& agents, bool with_models) {
  std::vector<SampledTask> tasks;
  std::size_t arms = 0;
  for (const auto& cell : cells) {
    tasks.push_back(task_of(cell, with_models));
    arms += tasks.back().arm_us.size();
  }
  ReplayOptions options;
  options.agents = agents;
  options.worth = 1.01;
  options.make = [](const std::string& name, const AgentOptions& agent) -> std::unique_ptr<Agent> {
    if (name != kFastestMeasured) return nullptr;
    return std::make_unique<FastestMeasured>(make_agent(kMeans, agent));
  };
  fmt::print(
      "{} cells, {} settings, {}\n\n| agent | budget | evaluations | of exhaustive | gain of the "
      "oracle's | lowest seed | slower choices | worst time over the default's |\n"
      "|---|---|---|---|---|---|---|---|\n",
      tasks.size(), arms, with_models ? "expecting what the models say" : "expecting nothing");
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
  if (agents.empty()) agents = {"random", "bandit", kMeans, kFastestMeasured};
  const SimulatedCells cells = read_arms(argv[1]);
  for (const bool with_models : {false, true}) search(cells, agents, with_models);
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
