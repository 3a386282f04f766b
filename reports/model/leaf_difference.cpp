#include "reports/model/leaf_difference.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "core/vocabulary/parsed_json.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;
using Leaves = std::map<std::string, std::string>;

std::string text_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "unknown";
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string name_in(const json& element) {
  if (!element.is_object()) return "";
  const auto name = element.find("name");
  return name != element.end() && name->is_string() ? name->get<std::string>() : "";
}

void collect(const json& document, const std::string& at, Leaves& leaves) {
  // What holds nothing has no leaf: a list that is empty and one that is not there are alike.
  if (document.empty() && (document.is_structured() || at.empty())) return;
  const auto below = [&](const std::string& key) { return at.empty() ? key : at + "." + key; };
  if (document.is_object()) {
    for (const auto& [key, value] : document.items()) collect(value, below(key), leaves);
    return;
  }
  const bool of_objects =
      document.is_array() && std::all_of(document.begin(), document.end(),
                                         [](const json& element) { return element.is_object(); });
  if (!of_objects) {
    leaves[at] = text_of(document);
    return;
  }
  std::set<std::string> names;
  for (const auto& element : document) names.insert(name_in(element));
  const bool named = names.size() == document.size() && !names.contains("");
  for (std::size_t i = 0; i < document.size(); ++i) {
    json rest = document[i];
    if (named) rest.erase("name");
    collect(rest, below(named ? name_in(document[i]) : std::to_string(i)), leaves);
  }
}

constexpr std::array<std::string_view, 13> kPassingEnds{
    "available_bytes", "free_bytes", "used_bytes", "nr_throttled", "uptime_s",    "probe_us",
    "container.id",    "_mhz",       ".pid",       "probe_pid",    "cgroup.path", "load_1min",
    "current_clock_hz"};
constexpr std::array<std::string_view, 8> kPassingParts{
    "unknown.", "namespaces.", "process.", ".veth", ".br-", ".dyn", ".evidence", "telemetry"};

}  // namespace

json stored_json(const std::string& text) {
  if (text.empty()) return {};
  json document = json_or_discarded(text);
  return document.is_discarded() ? json(text) : document;
}

std::vector<std::string> setting_words(const std::string& text) {
  const json settings = json_or_discarded(text);
  const bool flat =
      settings.is_object() && std::none_of(settings.begin(), settings.end(),
                                           [](const json& value) { return value.is_structured(); });
  if (!flat) return text.empty() ? std::vector<std::string>{} : std::vector{text};
  std::vector<std::string> words;
  for (const auto& [name, value] : settings.items())
    words.push_back(name + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
  return words;
}

std::map<std::string, std::string> leaves_of(const json& document) {
  Leaves leaves;
  collect(document, "", leaves);
  return leaves;
}

bool is_passing(const std::string& what) {
  const std::string dotted = "." + what;
  return std::any_of(kPassingEnds.begin(), kPassingEnds.end(),
                     [&](std::string_view end) { return what.ends_with(end); }) ||
         std::any_of(kPassingParts.begin(), kPassingParts.end(),
                     [&](std::string_view part) { return dotted.find(part) != std::string::npos; });
}

std::vector<LeafDifference> leaf_differences(const json& a, const json& b) {
  const Leaves mine = leaves_of(a);
  Leaves theirs = leaves_of(b);
  std::vector<LeafDifference> differences;
  for (const auto& [what, value] : mine) {
    const auto other = theirs.find(what);
    const std::string theirs_value = other == theirs.end() ? "-" : other->second;
    if (theirs_value != value) differences.push_back({what, value, theirs_value});
    if (other != theirs.end()) theirs.erase(other);
  }
  for (const auto& [what, value] : theirs) differences.push_back({what, "-", value});
  std::sort(differences.begin(), differences.end(),
            [](const auto& x, const auto& y) { return x.what < y.what; });
  return differences;
}

std::vector<LeafDifference> without_passing(std::vector<LeafDifference> differences) {
  std::erase_if(differences, [](const auto& difference) { return is_passing(difference.what); });
  return differences;
}

bool is_launch_variable(const std::string& name) {
  return name == "DYNAMICCL_DB" || name == "DYNAMICCL_ENVIRONMENT" || name == "DYNAMICCL_OWNER" ||
         name == "DYNAMICCL_RANK" || name == "DYNAMICCL_LAUNCH";
}

}  // namespace dynamiccl
