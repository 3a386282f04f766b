#pragma once

#include <map>
#include <string>
#include <vector>

#include "tuner/table/table.hpp"

namespace dynamiccl {

/// coll_tuned's dynamic rules file (Open MPI 4.1); "" where no row can be said in one.
std::string openmpi_rules(const std::vector<TableEntry>& entries, std::vector<std::string>& notes);
/// MCA parameters of the launch, without their "mca." prefix.
std::map<std::string, std::string> openmpi_parameters(const std::vector<TableEntry>& entries,
                                                      std::vector<std::string>& notes);
/// MPICH 4.0 control variables with their values' names.
std::map<std::string, std::string> mpich_variables(const std::vector<TableEntry>& entries,
                                                   std::vector<std::string>& notes);

}  // namespace dynamiccl
