#include "profiles/detect/pair_places.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "core/vocabulary/text.hpp"
#include "profiles/detect/fact_access.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

/// The one list of CPUs that holds all a rank may use; nullopt: none or not known.
std::optional<std::size_t> group_of(const json& facts, const char* key) {
  const json& groups = fact(facts, "cpu", key);
  const json& affinity = fact(facts, "process", "affinity");
  if (!groups.is_array() || !affinity.is_array() || affinity.empty()) return std::nullopt;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const json& group = groups[i];
    if (!group.is_array()) continue;
    const bool all = std::all_of(affinity.begin(), affinity.end(), [&](const json& cpu) {
      return std::find(group.begin(), group.end(), cpu) != group.end();
    });
    if (all) return i;
  }
  return std::nullopt;
}

/// Where ranks can be distinguished.
struct Spot {
  std::string node;
  std::optional<std::size_t> socket;
  std::optional<std::size_t> die;
  auto operator<=>(const Spot&) const = default;
};

PairPlace between_nodes(const NodePlace& a, const NodePlace& b) {
  const auto shared = [](const std::string& one, const std::string& other) {
    return !one.empty() && one == other;
  };
  if (shared(a.leaf_switch, b.leaf_switch)) return PairPlace::leaf_switch;
  if (shared(a.rack, b.rack)) return PairPlace::rack;
  if (a.zone.empty() || b.zone.empty()) return PairPlace::network;
  return a.zone == b.zone ? PairPlace::zone : PairPlace::apart;
}

PairPlace place_of(const Spot& a, const Spot& b, const NodePlaces& places) {
  if (a.node == b.node) {
    if (a.die && a.die == b.die) return PairPlace::die;
    return a.socket && a.socket == b.socket ? PairPlace::socket : PairPlace::node;
  }
  static const NodePlace kNowhere;
  const auto find = [&](const std::string& node) -> const NodePlace& {
    const auto found = places.find(node);
    return found == places.end() ? kNowhere : found->second;
  };
  return between_nodes(find(a.node), find(b.node));
}

}  // namespace

PairPlaces pair_places(const std::vector<RankPlace>& ranks, const NodePlaces& places) {
  std::map<Spot, std::uint64_t> spots;
  std::set<std::string> sources;
  for (const auto& rank : ranks) {
    ++spots[{rank.node, group_of(rank.facts, "socket_cpus"), group_of(rank.facts, "die_cpus")}];
    const auto known = places.find(rank.node);
    if (known != places.end()) sources.insert(known->second.how);
  }
  std::map<PairPlace, std::uint64_t> pairs;
  std::uint64_t all = 0;
  const auto add = [&](PairPlace place, std::uint64_t count) {
    if (count > 0) pairs[place] += count;
    all += count;
  };
  for (auto a = spots.begin(); a != spots.end(); ++a) {
    add(place_of(a->first, a->first, places), a->second * (a->second - 1) / 2);
    for (auto b = std::next(a); b != spots.end(); ++b)
      add(place_of(a->first, b->first, places), a->second * b->second);
  }
  PairPlaces result;
  for (const auto& [place, count] : pairs)
    result.mix[place] = static_cast<double>(count) / static_cast<double>(all);
  result.how = "the CPUs that ranks may use";
  if (!sources.empty()) result.how += "; nodes: " + join({sources.begin(), sources.end()}, " and ");
  return result;
}

json to_json(const PairPlaces& pairs) {
  if (pairs.mix.empty()) return nullptr;
  json mix = json::object();
  for (const auto& [place, share] : pairs.mix) mix[std::string(name_of(place))] = share;
  return {{"worst", name_of(pairs.worst())}, {"mix", std::move(mix)}, {"how", pairs.how}};
}

std::string pair_places_text(const json& pairs) {
  if (!pairs.is_object()) return "";
  const json mix = pairs.value("mix", json());
  if (!mix.is_object()) return "";
  std::vector<std::string> parts;
  for (const auto& entry : NameTable<PairPlace>::entries) {
    const json share = mix.value(std::string(entry.name), json());
    if (share.is_number())
      parts.push_back(fmt::format("{:.3g} % {}", share.get<double>() * 100, entry.name));
  }
  const json how = pairs.value("how", json());
  std::string text = join(parts, ", ");
  if (const auto at = how.is_string() ? how.get<std::string>().find("nodes: ") : std::string::npos;
      at != std::string::npos && !text.empty())
    text += " (" + how.get<std::string>().substr(at) + ")";
  return text;
}

}  // namespace dynamiccl
