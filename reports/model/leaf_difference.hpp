#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// A value that two documents do not have in common; "-" where one lacks it.
struct LeafDifference {
  std::string what;  ///< "cpu.model"
  std::string a;
  std::string b;
};

/// A stored document; its text as a JSON string where it is none, null where it is empty.
nlohmann::json stored_json(const std::string& text);

/// Stored settings as they are typed, "batch=32" each; the whole text where it is no flat object.
std::vector<std::string> setting_words(const std::string& text);

/// "cpu.model" -> "EPYC" for every leaf. Members of a list of objects are called by their names, by
/// their places where names lack or repeat; other lists are one leaf. "unknown" for null.
std::map<std::string, std::string> leaves_of(const nlohmann::json& document);

/// Compares leaf by leaf. Sorted by `what`.
std::vector<LeafDifference> leaf_differences(const nlohmann::json& a, const nlohmann::json& b);

/// Is a leaf another with every look at one unchanged machine? Free memory, counters, clock
/// frequencies, ids of containers and namespaces, links that an engine made for one run, reasons
/// for unknown values.
bool is_passing(const std::string& what);
std::vector<LeafDifference> without_passing(std::vector<LeafDifference> differences);

/// Variables that belong to one launch alone.
bool is_launch_variable(const std::string& name);

}  // namespace dynamiccl
