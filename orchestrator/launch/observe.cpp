#include "orchestrator/launch/observe.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "containers/cluster/slurm_topology.hpp"
#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/environment_probe.hpp"
#include "profiles/detect/promise_check.hpp"
#include "profiles/detect/regime.hpp"

namespace dynamiccl {
namespace {

struct Seen {
  std::vector<HelloRecord> hellos;
  std::vector<FactsRecord> facts;
};

Seen seen_by_ranks(const std::vector<RecordFile>& files) {
  Seen seen;
  for (const auto& file : files) {
    for (const auto& record : file.records) {
      if (const auto* hello = std::get_if<HelloRecord>(&record)) seen.hellos.push_back(*hello);
      if (const auto* facts = std::get_if<FactsRecord>(&record)) seen.facts.push_back(*facts);
    }
  }
  return seen;
}

void set_regime(const EnvironmentProfile& profile, Backend backend, const RankHosts& hosts,
                const Seen& seen, LaunchEnd& end) {
  if (seen.facts.empty()) return;
  RegimeContext context = regime_context(profile, hosts.declared);
  context.backend = backend;
  context.places = hosts.places;
  if (!seen.hellos.empty()) context.library_version = seen.hellos.front().library_version;
  std::vector<nlohmann::json> facts;
  for (const auto& record : seen.facts) {
    facts.push_back(record.facts);
    if (const auto rank = static_cast<std::size_t>(record.rank); rank < hosts.of_ranks.size())
      context.nodes.push_back(hosts.of_ranks[rank]);
  }
  const Regime regime = derive_regime(facts, context);
  end.regime_id = regime.id;
  end.regime_name = regime.name;
  end.regime_json = regime.json.dump();
}

/// What is declared of a node replaces what was found of it, level by level.
void declare_places(const NodePlaces& declared, NodePlaces& places) {
  for (const auto& [node, place] : declared) {
    NodePlace& known = places[node];
    for (auto level : {&NodePlace::leaf_switch, &NodePlace::rack, &NodePlace::zone})
      if (!(place.*level).empty()) known.*level = place.*level;
    known.how = known.how.empty() ? place.how : known.how + " and " + place.how;
  }
}

std::string machine_of(const nlohmann::json& facts) {
  const auto text = [&](const char* pointer) {
    const auto value = facts.value(nlohmann::json::json_pointer(pointer), nlohmann::json());
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  return text("/system/hostname") + " " + text("/system/boot_id");
}

}  // namespace

std::string why_misplaced(const std::vector<std::string>& of_ranks,
                          const std::vector<FactsRecord>& facts) {
  std::map<std::string, std::map<std::string, std::vector<int>>> machines;
  for (const auto& record : facts)
    if (const auto rank = static_cast<std::size_t>(record.rank);
        rank < of_ranks.size() && record.facts.is_object())
      machines[of_ranks[rank]][machine_of(record.facts)].push_back(record.rank);
  for (const auto& [node, found] : machines) {
    if (found.size() < 2) continue;
    std::vector<std::string> parts;
    for (const auto& [machine, ranks] : found) {
      const std::string host = machine.substr(0, machine.find(' '));
      parts.push_back(fmt::format("{} on {}", fmt::join(ranks, ", "), host));
    }
    return fmt::format(
        "placement: the ranks that {} was given run elsewhere ({}): does a setting around this "
        "program (of Slurm, or a launcher's own) spread ranks over nodes?",
        node, join(parts, "; "));
  }
  return "";
}

void place_hosts(const std::vector<ClusterNode>& slots, const std::string& topology,
                 RankHosts& hosts) {
  for (const auto& [name, count] : slots)
    hosts.of_ranks.insert(hosts.of_ranks.end(), static_cast<std::size_t>(count), name);
  hosts.places = places_of_topology(topology);
  declare_places(hosts.declared.places, hosts.places);
}

RegimeContext regime_context(const EnvironmentProfile& profile,
                             const MachineDeclarations& declared) {
  RegimeContext context;
  // A profile is nearer to the launch than what holds for the whole machine.
  context.declared_aggregation =
      profile.declared_aggregation.empty() ? declared.aggregation : profile.declared_aggregation;
  context.declared_link_bits_per_s = profile.link_bits_per_s;
  context.declared_topology = declared.topology;
  context.declared_deployment = declared.deployment;
  return context;
}

std::vector<std::string> observe(const EnvironmentProfile& profile, const RunConfig& config,
                                 const RankHosts& hosts, const std::vector<RecordFile>& records,
                                 LaunchEnd& end) {
  const Seen seen = seen_by_ranks(records);
  set_regime(profile, config.backend, hosts, seen, end);
  // Ranks that left nothing have been complained about; there is nothing to compare a promise with.
  if (seen.hellos.empty()) return {};
  LaunchExpectation expected;
  expected.promise = promise_of(profile);
  expected.ranks = config.ranks;
  expected.hosts = hosts.count;
  std::vector<std::string> problems;
  for (const auto& violation : check_promise(expected, hosts.facts, seen.hellos, seen.facts))
    problems.push_back(violation.rule + ": " + violation.message);
  // Containers have host names of their own.
  if (profile.kind == EnvironmentKind::bare_metal)
    if (auto why = why_misplaced(hosts.of_ranks, seen.facts); !why.empty())
      problems.push_back(std::move(why));
  return problems;
}

std::string recorded_environment(const std::vector<Command>& commands) {
  std::vector<std::pair<std::string, std::string>> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos)
      all.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  for (const auto& command : commands)
    all.insert(all.end(), command.environment.begin(), command.environment.end());
  return recorded_variables(all).dump();
}

}  // namespace dynamiccl
