#include "profiles/machine_declarations.hpp"

#include <fmt/format.h>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/network_topology.hpp"
#include "core/vocabulary/text.hpp"
#include "profiles/strict_toml.hpp"

namespace dynamiccl {
namespace {

/// Members of each group of one kind, as [machine.racks] has them.
using Groups = std::map<std::string, std::vector<std::string>>;

struct Level {
  const char* key;
  const char* one;
  std::string NodePlace::*name;
};
constexpr Level kSwitches{"switches", "switch", &NodePlace::leaf_switch};
constexpr Level kRacks{"racks", "rack", &NodePlace::rack};
constexpr Level kZones{"zones", "zone", &NodePlace::zone};

/// Puts the nodes of one level's groups into their places. A member that is the name of a nearer
/// level's group stands for all nodes of that group.
/// @param nearer nodes of each group of the levels below
void place_nodes(TableReader& machine, const Level& level, Groups& nearer, NodePlaces& places) {
  if (!machine.has(level.key)) return;
  auto table = machine.table(level.key);
  if (!table) return;
  Groups own;
  for (const std::string& group : table->keys()) {
    for (const std::string& member : table->texts(group)) {
      const auto known = nearer.find(member);
      const auto nodes = known == nearer.end() ? std::vector<std::string>{member} : known->second;
      for (const std::string& node : nodes) {
        std::string& place = places[node].*level.name;
        places[node].how = "declared";
        if (!place.empty() && place != group)
          table->complain(group, fmt::format("{} stands at {} {} already: a node is at one {}",
                                             node, level.one, place, level.one));
        place = group;
        own[group].push_back(node);
      }
    }
  }
  for (auto& [group, nodes] : own)
    if (!nearer.emplace(group, nodes).second)
      table->complain(group, fmt::format("\"{}\" is the name of something nearer already: give the "
                                         "{} another",
                                         group, level.one));
  table->finish();
}

/// By the name that states and tables of settings have for it; "" where none is declared.
std::string read_topology(TableReader& table) {
  const auto text = table.text("topology");
  if (!text) return "";
  const auto topology = find_topology(*text);
  if (topology) return std::string(name_of(*topology));
  table.complain("topology", TableReader::unknown_name("topology", *text, all_names<Topology>()));
  return "";
}

}  // namespace

TableKeys machine_keys() {
  const auto groups = [](const char* name) {
    return rule::chosen(rule::filled_text().some(), "", name);
  };
  return {{{"aggregation", rule::text(), "in-network aggregation: \"sharp\", \"switchml\""},
           {"topology", rule::text(),
            "of the network between nodes: " + join(all_names<Topology>(), ", ")},
           {"deployment",
            rule::text_like("^(datacenter|edge|federated)$",
                            "\"datacenter\", \"edge\" or \"federated\""),
            "where the nodes stand"},
           {"switches", groups("SWITCH"), "nodes at each leaf switch"},
           {"racks", groups("RACK"), "nodes or switches of each rack"},
           {"zones", groups("ZONE"), "nodes, switches or racks of each zone"}}};
}

MachineDeclarations read_machine_keys(TableReader& table) {
  MachineDeclarations machine;
  machine.aggregation = table.text("aggregation").value_or("");
  machine.topology = read_topology(table);
  machine.deployment = table.text("deployment").value_or("");
  Groups nearer;
  for (const Level& level : {kSwitches, kRacks, kZones})
    place_nodes(table, level, nearer, machine.places);
  return machine;
}

MachineDeclarations parse_declarations(const std::string& text, const std::string& source) {
  const toml::table root = parse_toml(text, source);
  Mistakes mistakes(source);
  static const TableKeys keys = machine_keys();
  TableReader table(root, "", mistakes, &keys);
  const auto machine = read_machine_keys(table);
  table.finish();
  mistakes.raise();
  return machine;
}

std::string declared_text(const MachineDeclarations& machine) {
  nlohmann::json told = nlohmann::json::object();
  if (!machine.topology.empty()) told["topology"] = machine.topology;
  if (!machine.deployment.empty()) told["deployment"] = machine.deployment;
  if (!machine.aggregation.empty()) told["aggregation"] = machine.aggregation;
  return told.empty() ? "" : told.dump();
}

}  // namespace dynamiccl
