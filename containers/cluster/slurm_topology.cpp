#include "containers/cluster/slurm_topology.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <regex>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kMostNames = 65536;

void add_name(std::vector<std::string>& names, std::string name, const std::string& list) {
  if (names.size() >= kMostNames)
    throw Error(ErrorKind::environment,
                fmt::format("\"{}\" names more than {} nodes", list.substr(0, 80), kMostNames));
  names.push_back(std::move(name));
}

/// "node[1-3,07]x" without its brackets' commas being taken for separators.
std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words(1);
  int depth = 0;
  for (const char c : list) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0)
      words.emplace_back();
    else
      words.back() += c;
  }
  return words;
}

void expand_word(const std::string& word, const std::string& list,
                 std::vector<std::string>& names) {
  static const std::regex bracketed(R"(([^\[\]]*)\[([0-9,\-]+)\](.*))");
  static const std::regex range(R"((\d{1,9})(?:-(\d{1,9}))?)");
  std::smatch parts;
  if (!std::regex_match(word, parts, bracketed)) {
    if (word.empty() || word.find_first_of("[] ") != std::string::npos)
      throw Error(ErrorKind::environment,
                  fmt::format("\"{}\" is no list of names as Slurm writes it, \"node[1-3],login\"",
                              list.substr(0, 80)));
    return add_name(names, word, list);
  }
  for (const std::string& part : split(parts[2].str(), ',')) {
    std::smatch bounds;
    if (!std::regex_match(part, bounds, range))
      throw Error(ErrorKind::environment,
                  fmt::format("\"{}\" is no range of numbers in \"{}\"", part, list.substr(0, 80)));
    const long low = std::stol(bounds[1].str());
    const long high = bounds[2].matched ? std::stol(bounds[2].str()) : low;
    for (long number = low; number <= high; ++number)
      expand_word(
          fmt::format("{}{:0{}}{}", parts[1].str(), number, bounds[1].length(), parts[3].str()),
          list, names);
  }
}

struct Switch {
  int level = 0;
  std::vector<std::string> nodes;
};

std::map<std::string, Switch> switches_of(const std::string& text) {
  std::map<std::string, Switch> switches;
  for (const std::string& line : split(text, '\n')) {
    std::map<std::string, std::string> values;
    for (const std::string& word : split(line, ' '))
      if (const auto equals = word.find('='); equals != std::string::npos)
        values[word.substr(0, equals)] = word.substr(equals + 1);
    if (!values.contains("SwitchName") || values["Nodes"].empty()) continue;
    try {
      switches[values["SwitchName"]] = {std::atoi(values["Level"].c_str()),
                                        expand_names(values["Nodes"])};
    } catch (const Error&) {
      // Another version's form: of these nodes nothing is known.
    }
  }
  return switches;
}

}  // namespace

std::vector<std::string> expand_names(const std::string& list) {
  std::vector<std::string> names;
  for (const std::string& word : words_of(list)) expand_word(word, list, names);
  return names;
}

NodePlaces places_of_topology(const std::string& text) {
  NodePlaces places;
  for (const auto& [name, one] : switches_of(text)) {
    for (const std::string& node : one.nodes) {
      NodePlace& place = places[node];
      place.how = "Slurm's topology";
      if (one.level == 0) place.leaf_switch = name;
      if (one.level == 1) place.rack = name;
      if (one.level == 2) place.zone = name;
    }
  }
  return places;
}

}  // namespace dynamiccl
