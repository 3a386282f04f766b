#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dynamiccl {

/// A value that two documents do not have in common; "-" where one lacks it.
struct LeafDifference {
  std::string what;  ///< "cpu.model"
  std::string a;
  std::string b;
};

/// Compares leaf by leaf. Lists of objects with a name are compared by name, other lists as a
/// whole. Sorted by `what`.
std::vector<LeafDifference> leaf_differences(const nlohmann::json& a, const nlohmann::json& b);

/// Drops what is another with every look at one unchanged machine: free memory, counters, ids of
/// containers and namespaces, links that an engine made for one run, reasons for unknown values.
std::vector<LeafDifference> without_passing(std::vector<LeafDifference> differences);

/// Variables that belong to one launch alone.
bool is_launch_variable(const std::string& name);

}  // namespace dynamiccl
