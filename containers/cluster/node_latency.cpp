#include "containers/cluster/node_latency.hpp"

#include <cstdlib>
#include <optional>

#include "containers/command.hpp"
#include "containers/held_command.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

constexpr std::chrono::seconds kPatience{60};

/// A node's answering program, and where it is reached.
struct Answering {
  HeldCommand program;
  std::string place;
};

std::vector<Answering> start_answering(const std::vector<std::string>& nodes, const NodeArgv& argv,
                                       const std::string& probe, const std::string& interface) {
  std::vector<std::string> command{probe, "--echo"};
  if (!interface.empty()) command.push_back(interface);
  std::vector<Answering> all;
  for (const std::string& node : nodes)
    all.push_back({HeldCommand(argv(node, command, true), "/dev/null"), ""});
  for (Answering& one : all) {
    const auto line = one.program.read_line("echo ", kPatience, nullptr);
    if (!line) return {};
    one.place = line->substr(line->find(' ') + 1);
  }
  return all;
}

/// One node's round trips to all behind it; false where one is missing.
bool ask(std::size_t asking, const std::vector<Answering>& all, const NodeArgv& argv,
         const std::string& probe, NodeLatencies& round) {
  std::vector<std::string> command{probe, "--ping"};
  for (std::size_t i = asking + 1; i < all.size(); ++i) command.push_back(all[i].place);
  CommandOptions options;
  options.timeout = std::chrono::minutes(2);
  const auto answer = run_command(argv(round.nodes[asking], command, false), options);
  const auto lines = split(std::string(trim(answer.out)), '\n');
  if (answer.exit_code != 0 || lines.size() != all.size() - asking - 1) return false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto words = split(lines[i], ' ');
    if (words.size() != 2 || words[0] != all[asking + 1 + i].place) return false;
    round.us[asking][asking + 1 + i] = std::strtod(words[1].c_str(), nullptr);
  }
  return true;
}

}  // namespace

std::vector<NodeLatencies> measure_latencies(const std::vector<std::string>& nodes,
                                             const NodeArgv& argv, const std::string& probe,
                                             const std::string& interface, int rounds) {
  NodeLatencies empty;
  empty.nodes = nodes;
  empty.us.assign(nodes.size(), std::vector<double>(nodes.size(), 0));
  std::vector<NodeLatencies> all(static_cast<std::size_t>(rounds), empty);
  try {
    const auto answering = start_answering(nodes, argv, probe, interface);
    if (answering.empty()) return {};
    for (NodeLatencies& round : all)
      for (std::size_t i = 0; i + 1 < nodes.size(); ++i)
        if (!ask(i, answering, argv, probe, round)) return {};
  } catch (const Error&) {
    return {};  // what nobody can measure is not known
  }
  return all;
}

}  // namespace dynamiccl
