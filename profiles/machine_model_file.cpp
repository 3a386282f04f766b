#include "profiles/machine_model_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/vocabulary/text.hpp"
#include "profiles/strict_toml.hpp"
#include "profiles/table_reader.hpp"

namespace dynamiccl {
namespace {

/// More is no mistake of thought, but of typing.
constexpr int kMostRanks = 1 << 20;
constexpr const char* kSource = "where the figures come from, or that they are assumed";

TableKeys class_keys(bool with_sizes) {
  TableKeys keys{
      {{"latency", rule::positive_duration(), "of a message, end to end", "", true},
       {"gbytes_per_s", rule::number(1e-6, 1e6), "of one direction, decimal", "", true}}};
  if (with_sizes)
    keys.keys.push_back({"from", rule::size(), "messages of this size and more", "", true});
  return keys;
}

TableKeys link_keys() {
  TableKeys keys = class_keys(false);
  keys.keys.push_back({"source", rule::filled_text(), kSource, "", true});
  keys.keys.push_back({"class", rule::tables({std::make_shared<const TableKeys>(class_keys(true))}),
                       "what holds from a size of messages on"});
  return keys;
}

TableKeys shape_keys() {
  const auto counts = [] { return rule::whole(1, kMostRanks).some(); };
  return {
      {{"shape", rule::word<MachineShape>(), "of the network between the nodes", "", true},
       {"source", rule::filled_text(), kSource, "", true},
       {"down", counts(), "fat-tree: children of a switch, level by level from the nodes up"},
       {"up", counts(), "fat-tree: parents of a node or switch, level by level"},
       {"cables", counts(),
        "fat-tree: to each parent, level by level; dragonfly: between groups, chassis, routers"},
       {"dimensions", counts(), "torus: nodes in each"},
       {"counts", counts(),
        "dragonfly: groups, chassis of a group, routers of a chassis, nodes of a router"},
       {"ports", rule::whole(2, kMostRanks), "bcube: of a switch"},
       {"levels", rule::whole(1, 16), "bcube: of switches, as many as a node has ports"},
       {"sites", rule::whole(2, kMostRanks), "cross-site: of equal size"}}};
}

TableKeys measured_keys() {
  return {
      {{"library", rule::filled_text(), "whose calls they are", "", true},
       {"source", rule::filled_text(), "the run", "", true},
       {"held_out",
        rule::tables({std::make_shared<const TableKeys>(TableKeys{
            {{"what", rule::word<HeldOut>(), "what was predicted without being fitted to", "",
              true},
             {"cells", rule::whole(1, kMostRanks), "", "", true},
             {"median_percent", rule::number(0, 1e12), "", "", true},
             {"p90_percent", rule::number(0, 1e12), "nine of ten cells are nearer", "", true}}})}),
        "how far predictions were from measured cells"},
       {"call",
        rule::tables({std::make_shared<const TableKeys>(
            TableKeys{{{"operation", rule::word<Collective>(), "", "", true},
                       {"ranks", rule::whole(2, kMostRanks), "", "", true},
                       {"size", rule::size(), "of the whole buffer", "", true},
                       {"us", rule::number(1e-6, 1e12), "median over launches", "", true}}})}),
        "", "", true}}};
}

TableKeys model_keys() {
  const auto link = [] { return rule::table(link_keys()); };
  return {{{"description", rule::filled_text(), "one line", "", true},
           {"source", rule::filled_text(), "of the counts of nodes and ranks", "", true},
           {"nodes", rule::whole(1, kMostRanks), "", "", true},
           {"ranks_per_node", rule::whole(1, kMostRanks), "GPUs, or processes", "1"},
           {"memory", rule::size(), "of a rank"},
           {"links",
            rule::table({{{"node", link(), "between ranks of a node"},
                          {"network", link(), "between nodes, without the network's own switches"},
                          {"wide", link(), "between sites"}}}),
            "", "", true},
           {"sum",
            rule::table({{{"gbytes_per_s", rule::number(1e-6, 1e6), "", "", true},
                          {"source", rule::filled_text(), kSource, "", true}}}),
            "how fast a rank sums", "takes no time"},
           {"topology", rule::table(shape_keys()), "", "a star: one switch"},
           {"measured", rule::table(measured_keys()), "what `predict --fit` read of a run"}}};
}

LinkClass read_class(TableReader& table, double from) {
  LinkClass one;
  one.from_bytes = from;
  one.latency_us = table.duration("latency").value_or(Micros(1)).count();
  one.bytes_per_us = table.number("gbytes_per_s").value_or(1) * 1e3;
  return one;
}

MachineLink read_link(TableReader& table) {
  MachineLink link;
  link.classes.push_back(read_class(table, 0));
  table.text("source");
  for (TableReader& next : table.tables("class")) {
    const double from = static_cast<double>(next.size("from").value_or(Bytes(1)).count());
    if (from <= link.classes.back().from_bytes)
      next.complain("from", "classes are written from the smallest size to the largest");
    link.classes.push_back(read_class(next, from));
    next.finish();
  }
  table.finish();
  return link;
}

std::int64_t product(const std::vector<int>& counts) {
  std::int64_t all = 1;
  for (const int count : counts) all = std::min<std::int64_t>(all * count, std::int64_t{1} << 40);
  return all;
}

/// Says what of the counts does not go together.
void check_shape(TableReader& table, const MachineModel& machine) {
  using enum MachineShape;
  const auto wants = [&](const char* key, std::size_t count, const std::vector<int>& values) {
    if (values.size() != count)
      table.complain(
          key, fmt::format("{} has {} here, one for each of the {}", key, values.size(), count));
  };
  if (machine.shape == fat_tree) {
    wants("up", machine.counts.size(), machine.up);
    wants("cables", machine.counts.size(), machine.cables);
    if (!machine.up.empty() && machine.up.front() != 1)
      table.complain("up", "a node has one leaf switch: the first is 1");
  }
  if (machine.shape == dragonfly) {
    wants("counts", 4, machine.counts);
    wants("cables", 3, machine.cables);
    if (machine.counts.size() == 4 && machine.counts[0] > machine.counts[2])
      table.complain("counts",
                     "more groups than routers of a chassis: each group's cable to another one "
                     "ends at the router of the other's number");
  }
  std::int64_t nodes = product(machine.counts);
  if (machine.shape == bcube && machine.counts.size() == 2) {
    nodes =
        product(std::vector<int>(static_cast<std::size_t>(machine.counts[1]), machine.counts[0]));
  }
  const bool sites = machine.shape == cross_site;
  if (sites ? machine.nodes % std::max<std::int64_t>(1, nodes) != 0
            : machine.shape != star && nodes != machine.nodes)
    table.complain(
        "shape", sites
                     ? fmt::format("{} nodes are not {} sites of equal size", machine.nodes, nodes)
                     : fmt::format("a {} of these counts has {} nodes, and nodes is {}",
                                   name_of(machine.shape), nodes, machine.nodes));
}

void read_shape(TableReader& table, MachineModel& machine) {
  using enum MachineShape;
  machine.shape = table.name<MachineShape>("shape").value_or(star);
  table.text("source");
  const std::vector<int> down = table.integers("down");
  const std::vector<int> dimensions = table.integers("dimensions");
  const std::vector<int> counts = table.integers("counts");
  const auto ports = table.integer("ports");
  const auto levels = table.integer("levels");
  const auto sites = table.integer("sites");
  machine.up = table.integers("up");
  machine.cables = table.integers("cables");
  const auto need = [&](MachineShape shape, const char* key, std::vector<int> values) {
    if (machine.shape != shape) {
      if (table.has(key))
        table.complain(key, fmt::format("{} is of {}, and the shape is {}", key, name_of(shape),
                                        name_of(machine.shape)));
    } else if (!table.has(key)) {
      table.complain("shape", fmt::format("a {} needs the key {}", name_of(shape), key));
    } else {
      machine.counts.insert(machine.counts.end(), values.begin(), values.end());
    }
  };
  const auto one = [](const auto& value) {
    return std::vector<int>{static_cast<int>(value.value_or(1))};
  };
  need(fat_tree, "down", down);
  need(torus, "dimensions", dimensions);
  need(dragonfly, "counts", counts);
  need(bcube, "ports", one(ports));
  need(bcube, "levels", one(levels));
  need(cross_site, "sites", one(sites));
  check_shape(table, machine);
  table.finish();
}

void read_links(TableReader& root, MachineModel& machine) {
  auto links = root.table("links");
  if (!links) return;
  constexpr std::array kNames{"node", "network", "wide"};
  for (std::size_t tier = 0; tier < kLinkTiers; ++tier)
    if (auto table = links->table(kNames[tier])) machine.links[tier] = read_link(*table);
  const auto need = [&](bool needed, std::size_t tier, const char* why) {
    if (needed && !links->has(kNames[tier]))
      root.complain("links", fmt::format("links.{} is absent: {}", kNames[tier], why));
  };
  need(machine.ranks_per_node > 1, 0, "a node has several ranks");
  need(machine.nodes > 1, 1, "there are several nodes");
  need(machine.shape == MachineShape::cross_site, 2, "there are several sites");
  links->finish();
}

MeasuredLibrary read_measured(TableReader& table) {
  MeasuredLibrary library;
  library.name = table.text("library").value_or("");
  table.text("source");
  for (TableReader& one : table.tables("held_out")) {
    const auto what = one.name<HeldOut>("what").value_or(HeldOut::sizes);
    library.errors[what] = {static_cast<int>(one.integer("cells").value_or(1)),
                            one.number("median_percent").value_or(0) / 100,
                            one.number("p90_percent").value_or(0) / 100};
    one.finish();
  }
  for (TableReader& one : table.tables("call")) {
    library.calls.push_back({one.name<Collective>("operation").value_or(Collective::allreduce),
                             static_cast<int>(one.integer("ranks").value_or(2)),
                             static_cast<double>(one.size("size").value_or(Bytes(1)).count()),
                             one.number("us").value_or(1)});
    one.finish();
  }
  table.finish();
  return library;
}

}  // namespace

MachineModel parse_machine_model(const std::string& text, const std::string& source,
                                 const std::vector<std::string>& overrides) {
  toml::table parsed = parse_toml(text, source);
  apply_overrides(parsed, overrides);
  Mistakes mistakes(source);
  static const TableKeys keys = model_keys();
  TableReader root(parsed, "", mistakes, &keys);
  MachineModel machine;
  machine.name = std::filesystem::path(source).stem().string();
  machine.description = root.text("description").value_or("");
  root.text("source");
  machine.nodes = static_cast<int>(root.integer("nodes").value_or(1));
  machine.ranks_per_node = static_cast<int>(root.integer("ranks_per_node").value_or(1));
  machine.memory_bytes = static_cast<double>(root.size("memory").value_or(Bytes(0)).count());
  if (static_cast<std::int64_t>(machine.nodes) * machine.ranks_per_node > kMostRanks) {
    root.complain("nodes", fmt::format("{} ranks at most", kMostRanks));
    machine.nodes = machine.ranks_per_node = 1;
  }
  if (auto table = root.table("topology")) read_shape(*table, machine);
  read_links(root, machine);
  if (auto table = root.table("measured")) machine.measured = read_measured(*table);
  if (auto table = root.table("sum")) {
    machine.sum_bytes_per_us = table->number("gbytes_per_s").value_or(0) * 1e3;
    table->text("source");
    table->finish();
  }
  root.finish();
  mistakes.raise();
  return machine;
}

std::vector<std::string> machine_model_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string machine_model_path(const std::string& name_or_path, const std::string& folder) {
  const bool is_path = name_or_path.ends_with(".toml");
  const std::string path = is_path ? name_or_path : folder + "/" + name_or_path + ".toml";
  if (!is_path && !std::filesystem::exists(path))
    throw Error(ErrorKind::input,
                TableReader::unknown_name("machine", name_or_path, machine_model_names(folder)) +
                    "; a file of your own is named by its path, which ends in .toml");
  return path;
}

MachineModel read_machine_model(const std::string& name_or_path, const std::string& folder,
                                const std::vector<std::string>& overrides) {
  const std::string path = machine_model_path(name_or_path, folder);
  return parse_machine_model(read_input_file(path), path, overrides);
}

}  // namespace dynamiccl
