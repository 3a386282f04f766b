#pragma once

#include <map>
#include <string>
#include <vector>

#include "plugin/agreement/call_table.hpp"
#include "tuner/table/table.hpp"

namespace dynamiccl {

/// NCCL's part of a table: what goes per call and what goes per launch.
struct NcclExport {
  std::vector<CallRow> rows;
  std::map<std::string, std::string> environment;  ///< with the channel ceiling
  std::vector<std::string> notes;
};
/// All rows under the one launch setting that gains most; per-call caps below its ceiling. Between
/// two rows that do not agree NCCL chooses, capped as the nearer one is; collectives without rows
/// are capped as all-reduce is.
NcclExport nccl_settings(const std::vector<TableEntry>& entries);

/// What a setting says to NCCL's plugin: algorithm, protocol and cap of channels, by name.
CallCell call_cell(const ActionSettings& setting);

}  // namespace dynamiccl
