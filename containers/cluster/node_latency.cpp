#include "containers/cluster/node_latency.hpp"

#include <cstdlib>
#include <optional>

#include "containers/command.hpp"
#include "containers/held_command.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

constexpr std::chrono::seconds kTimeout{60};

/// The nodes' answering programs, and where each is reached; they end together.
struct Answering {
  std::vector<HeldCommand> programs;
  std::vector<std::string> places;
  ~Answering() { HeldCommand::end_all(programs, std::chrono::seconds(5)); }
};

/// @returns false where one does not start
bool start_answering(const std::vector<std::string>& nodes, const NodeArgv& argv,
                     const std::string& probe, const std::string& interface,
                     const Progress& progress, Answering& all) {
  std::vector<std::string> command{probe, "--echo"};
  if (!interface.empty()) command.push_back(interface);
  for (const std::string& node : nodes)
    all.programs.emplace_back(argv(node, command, true), "/dev/null");
  for (HeldCommand& program : all.programs) {
    const auto line = program.read_line("echo ", kTimeout, progress.interrupted);
    if (!line) return false;
    all.places.push_back(line->substr(line->find(' ') + 1));
  }
  return true;
}

/// One node's round trips to all behind it; false where one is missing.
bool ask(std::size_t asking, const std::vector<std::string>& places, const NodeArgv& argv,
         const std::string& probe, const Progress& progress, NodeLatencies& round) {
  std::vector<std::string> command{probe, "--ping"};
  for (std::size_t i = asking + 1; i < places.size(); ++i) command.push_back(places[i]);
  CommandOptions options;
  options.timeout = std::chrono::minutes(2);
  options.interrupted = progress.interrupted;
  const auto answer = run_command(argv(round.nodes[asking], command, false), options);
  auto lines = split(std::string(trim(answer.out)), '\n');
  const std::size_t asked = places.size() - asking - 1;
  if (answer.exit_code != 0 || lines.size() < asked) return false;
  // What the user's start-up files say there stands in front.
  lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(asked));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto words = split(lines[i], ' ');
    if (words.size() != 2 || words[0] != places[asking + 1 + i]) return false;
    round.us[asking][asking + 1 + i] = std::strtod(words[1].c_str(), nullptr);
  }
  return true;
}

}  // namespace

std::vector<NodeLatencies> measure_latencies(const std::vector<std::string>& nodes,
                                             const NodeArgv& argv, const std::string& probe,
                                             const std::string& interface, int rounds,
                                             const Progress& progress) {
  NodeLatencies empty;
  empty.nodes = nodes;
  empty.us.assign(nodes.size(), std::vector<double>(nodes.size(), 0));
  std::vector<NodeLatencies> all(static_cast<std::size_t>(rounds), empty);
  try {
    Answering answering;
    if (!start_answering(nodes, argv, probe, interface, progress, answering)) return {};
    for (NodeLatencies& round : all)
      for (std::size_t i = 0; i + 1 < nodes.size(); ++i)
        if (!ask(i, answering.places, argv, probe, progress, round)) return {};
  } catch (const Error&) {
    return {};  // what nobody can measure is not known
  }
  return all;
}

}  // namespace dynamiccl
