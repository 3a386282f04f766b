#include "reports/leaf_difference.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

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
  const bool named = document.is_array() &&
                     std::all_of(document.begin(), document.end(),
                                 [](const json& element) { return !name_in(element).empty(); });
  if (!named) {
    leaves[at] = text_of(document);
    return;
  }
  for (const auto& element : document) {
    json rest = element;
    rest.erase("name");
    collect(rest, below(name_in(element)), leaves);
  }
}

constexpr std::array<std::string_view, 12> kPassingEnds{
    "available_bytes", "free_bytes", "used_bytes", "nr_throttled", "uptime_s",         "probe_us",
    "container.id",    "_mhz",       ".pid",       "probe_pid",    "current_clock_hz", "load_1min"};
constexpr std::array<std::string_view, 8> kPassingParts{
    "unknown.", "namespaces.", "process.",           ".veth",
    ".br-",     ".dyn",        "container.evidence", "telemetry"};

bool is_passing(const std::string& what) {
  const std::string dotted = "." + what;
  return std::any_of(kPassingEnds.begin(), kPassingEnds.end(),
                     [&](std::string_view end) { return what.ends_with(end); }) ||
         std::any_of(kPassingParts.begin(), kPassingParts.end(),
                     [&](std::string_view part) { return dotted.find(part) != std::string::npos; });
}

}  // namespace

std::vector<LeafDifference> leaf_differences(const json& a, const json& b) {
  Leaves mine;
  Leaves theirs;
  collect(a, "", mine);
  collect(b, "", theirs);
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
