#include "tuner/agents/places.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>

#include "core/vocabulary/text.hpp"
#include "tuner/agents/kernel_means.hpp"
#include "tuner/agents/policy_file.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kHead = "dynamiccl-places 1";
constexpr double kPlaceSizes = 1;    // doublings of the message
constexpr double kPlaceRanks = 1;    // doublings
constexpr double kOtherReach = 0.3;  // weight of places where ranks reach each other otherwise
constexpr double kLeastWeight = 1e-3;
constexpr double kExpectedWeight = 1;  // places that what a search expects by itself counts for

double weight_of(const TaskKey& here, bool shared_memory, const PlacedCell& cell) {
  const TaskKey& there = cell.key;
  if (here.backend != there.backend || here.architecture != there.architecture ||
      here.collective != there.collective)
    return 0;
  const double sizes = (here.bin.log2 - there.bin.log2) / kPlaceSizes;
  const double ranks =
      std::log2(static_cast<double>(here.group_size) / there.group_size) / kPlaceRanks;
  const bool same = shared_memory == cell.shared_memory && (here.nodes > 1) == (there.nodes > 1);
  const double weight = (same ? 1 : kOtherReach) * std::exp(-0.5 * (sizes * sizes + ranks * ranks));
  return weight < kLeastWeight ? 0 : weight;
}

double number_in(const std::string& text, const std::string& where) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
    throw Error(ErrorKind::data, where + ": \"" + text + "\" is no number");
  return value;
}

PlacedCell cell_of(const std::string& line, const std::string& where) {
  const std::vector<std::string> fields = split(line, '\t');
  constexpr std::size_t kBefore = 3;
  if (fields.size() < kBefore || (fields[1] != "shared" && fields[1] != "apart"))
    throw Error(ErrorKind::data, where +
                                     ": expected PLACE, \"shared\" or \"apart\", a task key "
                                     "and SETTING=LN_RATIO, parted by tabs");
  PlacedCell cell{fields[0], fields[1] == "shared", TaskKey::parse(fields[2]), {}};
  for (std::size_t i = kBefore; i < fields.size(); ++i) {
    const std::size_t equals = fields[i].rfind('=');
    if (equals == std::string::npos)
      throw Error(ErrorKind::data, where + ": \"" + fields[i] + "\" has no \"=\"");
    cell.log_ratio[fields[i].substr(0, equals)] = number_in(fields[i].substr(equals + 1), where);
  }
  return cell;
}

}  // namespace

std::string setting_key(const ActionSettings& setting) {
  std::string key = setting.algorithm;
  for (const auto& [name, value] : setting.call_knobs) key += " " + name + "=" + value;
  for (const auto& [name, value] : setting.launch_knobs) key += " " + name + "=" + value;
  return key;
}

std::vector<PlacedCell> read_places(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line != kHead)
    throw Error(ErrorKind::data, path + ": no file of measured places: its first line is not \"" +
                                     std::string(kHead) + "\"");
  std::vector<PlacedCell> cells;
  for (int number = 2; std::getline(file, line); ++number)
    if (!line.empty() && line.front() != '#')
      cells.push_back(cell_of(line, fmt::format("{}:{}", path, number)));
  return cells;
}

std::string places_text(const std::vector<PlacedCell>& cells) {
  std::string text = std::string(kHead) + "\n";
  for (const PlacedCell& cell : cells) {
    text += fmt::format("{}\t{}\t{}", cell.place, cell.shared_memory ? "shared" : "apart",
                        cell.key.text());
    for (const auto& [setting, log_ratio] : cell.log_ratio)
      text += fmt::format("\t{}={:.3f}", setting, log_ratio);
    text += "\n";
  }
  return text;
}

std::string shipped_places() { return shipped_file("", "places/measured.tsv"); }

PlaceRanking rank_by_places(const Task& task, bool shared_memory,
                            const std::vector<PlacedCell>& cells) {
  std::map<std::string, std::pair<double, double>> sums;  // by setting: weighted, weight
  PlaceRanking ranking;
  for (const PlacedCell& cell : cells) {
    const double weight = weight_of(task.key.task, shared_memory, cell);
    if (weight == 0) continue;
    ranking.places.insert(cell.place);
    for (const auto& [setting, log_ratio] : cell.log_ratio) {
      auto& [sum, all] = sums[setting];
      sum += weight * log_ratio;
      all += weight;
    }
  }
  for (const Action& arm : task.space->arms()) {
    const auto found = sums.find(setting_key(task.space->setting(arm)));
    const bool known = !ActionSpace::is_default(arm) && found != sums.end();
    const auto [sum, weight] = known ? found->second : std::pair{0.0, 0.0};
    ranking.log_ratio.push_back(known ? sum / weight : 0);
    ranking.weight.push_back(weight);
  }
  return ranking;
}

bool start_from(Task& task, const PlaceRanking& ranking) {
  if (std::none_of(ranking.weight.begin(), ranking.weight.end(),
                   [](double weight) { return weight > 0; }))
    return false;
  std::vector<double> expected = expected_before_looks(task);
  const double reference = expected[0];
  for (std::size_t a = 0; a < expected.size(); ++a) {
    const double trust = ranking.weight[a] / (ranking.weight[a] + kExpectedWeight);
    expected[a] = trust * ranking.log_ratio[a] + (1 - trust) * (expected[a] - reference);
  }
  task.prior_log_us = std::move(expected);
  task.prior_trust = 1;
  return true;
}

}  // namespace dynamiccl
