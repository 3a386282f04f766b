#include "tuner/guards/gloo_floor.hpp"

#include <cmath>
#include <string>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/backend.hpp"
#include "profiles/detect/fact_access.hpp"
#include "profiles/detect/pair_places.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

/// Sizes further apart say little of what lies between them.
constexpr double kFurthestApart = 4;

/// Share of the pairs of ranks that are on one machine; nullopt: not known.
std::optional<double> on_one_machine(const json& regime) {
  const json& mix = fact(regime, "pairs", "mix");
  if (!mix.is_object()) return std::nullopt;
  double share = 0;
  for (const PairPlace place : {PairPlace::die, PairPlace::socket, PairPlace::node})
    if (const auto found = mix.find(std::string(name_of(place)));
        found != mix.end() && found->is_number())
      share += found->get<double>();
  return share;
}

bool same_place(const json& a, const json& b) {
  // What ranks of one host share is each library's own affair, and GPUs are none of Gloo's.
  for (const char* name : {"boundary", "apart", "inter_link", "inter_tier"}) {
    const json& one = fact(a, "ingredients", name);
    if (one.is_null() || one != fact(b, "ingredients", name)) return false;
  }
  const auto one = on_one_machine(a);
  const auto other = on_one_machine(b);
  constexpr double kRounding = 1e-3;
  return one && other && std::abs(*one - *other) < kRounding;
}

}  // namespace

void GlooTimes::add(const GlooTimes& more) {
  const std::size_t first = regimes.size();
  regimes.insert(regimes.end(), more.regimes.begin(), more.regimes.end());
  for (Row row : more.rows) {
    row.regime += first;
    rows.push_back(row);
  }
}

GlooTimes gloo_times(const ConfigurationTable& table) {
  GlooTimes times;
  std::map<std::string, std::size_t> places;
  for (const TableRegime& regime : table.regimes) {
    places[regime.id] = times.regimes.size();
    times.regimes.push_back(regime.json);
  }
  for (const TableEntry& entry : table.entries) {
    const TaskKey& key = entry.key.task;
    const auto place = places.find(entry.key.regime);
    if (key.backend != floor_backend() || key.architecture != Architecture::ring ||
        !(entry.evidence.default_us > 0) || place == places.end())
      continue;
    times.rows.push_back({place->second, key.collective, key.group_size, entry.size,
                          Micros(entry.evidence.default_us)});
  }
  return times;
}

GlooFloor::GlooFloor(const GlooTimes& known, const json& regime) {
  std::vector<bool> here;
  for (const json& other : known.regimes) here.push_back(same_place(regime, other));
  std::map<std::pair<Collective, int>, std::map<std::uint64_t, std::vector<double>>> times;
  for (const GlooTimes::Row& row : known.rows)
    if (here.at(row.regime) && row.time.count() > 0)
      times[{row.collective, row.ranks}][row.size.count()].push_back(row.time.count());
  for (auto& [work, sizes] : times)
    for (auto& [size, us] : sizes) sizes_[work][size] = median(us);
}

std::size_t GlooFloor::count() const {
  std::size_t all = 0;
  for (const auto& [work, sizes] : sizes_) all += sizes.size();
  return all;
}

std::optional<Micros> GlooFloor::at(Collective collective, int ranks, Bytes size) const {
  const auto work = sizes_.find({collective, ranks});
  if (work == sizes_.end()) return std::nullopt;
  const auto bytes = static_cast<double>(size.count());
  const auto above = work->second.lower_bound(size.count());
  if (above != work->second.end() && above->first == size.count()) return Micros(above->second);
  if (above == work->second.begin()) return std::nullopt;
  const auto below = std::prev(above);
  const double ratio = bytes / static_cast<double>(below->first);
  if (above != work->second.end() &&
      static_cast<double>(above->first) <= kFurthestApart * static_cast<double>(below->first)) {
    const double step = std::log(ratio) / std::log(static_cast<double>(above->first) /
                                                   static_cast<double>(below->first));
    return Micros(below->second * std::pow(above->second / below->second, step));
  }
  if (ratio < 2) return Micros(below->second * ratio);
  return std::nullopt;
}

}  // namespace dynamiccl
