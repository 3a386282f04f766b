#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/table/table.hpp"

namespace dynamiccl {

/// Launch setting without which Open MPI takes no algorithm from outside.
inline constexpr const char* kDynamicRules = "mca.coll_tuned_use_dynamic_rules";
/// Open MPI's own name of it.
inline constexpr std::string_view kDynamicRulesName = std::string_view(kDynamicRules).substr(4);

/// Number of an Open MPI 4.1 coll_tuned algorithm; -1: unknown to it.
int openmpi_algorithm(Collective collective, std::string_view name);

/// Why a launch's MCA parameter names no algorithm of Open MPI 4.1, which would take its own choice
/// without a word: "coll_tuned_bcast_algorithm", "99". "" where it does, or is another parameter.
std::string unknown_openmpi_number(std::string_view parameter, const std::string& value);

/// coll_tuned's dynamic rules file (Open MPI 4.1); "" where no row names an algorithm that it has.
/// A rule covers the ranks and sizes of its rows and the ground between two neighbouring rows that
/// agree; elsewhere it leaves the choice to the library.
std::string openmpi_rules(const std::vector<TableEntry>& entries, std::vector<std::string>& notes);
/// MCA parameters of the launch, without their scope.
std::map<std::string, std::string> openmpi_parameters(const std::vector<TableEntry>& entries,
                                                      std::vector<std::string>& notes);
/// Environment variables of a launch: its env knobs, and the allocator's settings as one
/// GLIBC_TUNABLES. Of several values of a variable the first stays; what any row wants of the
/// allocator holds for all.
std::map<std::string, std::string> launch_environment(const std::vector<TableEntry>& entries,
                                                      Backend backend,
                                                      std::vector<std::string>& notes);
/// The algorithm of each collective whose sizes gain most: what an MPICH variable would be.
std::map<Collective, std::string> mpich_algorithms(const std::vector<TableEntry>& entries);
std::string mpich_variable(Collective collective);
/// MPICH 4.0 control variables with their values' names. They hold for all sizes, so only an
/// algorithm that was checked over all sizes, is surely faster at one and loses at none is among
/// them.
std::map<std::string, std::string> mpich_variables(const std::vector<TableEntry>& entries,
                                                   const std::vector<TableEntry>& checks,
                                                   std::vector<std::string>& notes);
/// Was a size surely slower when it was checked (verdict SLOWER, which a check gives with the
/// number of sizes in mind), or did it not run where the default did? A size that was merely not
/// shown to be harmless does not lose: of a hundred sizes measured a few times each, some always
/// seem slower.
bool loses(const TableEntry& check);

}  // namespace dynamiccl
