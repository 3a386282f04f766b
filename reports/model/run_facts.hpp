#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "db/reader.hpp"

namespace dynamiccl {

/// Cells of a run that have no result, by group and reason.
/// @param unsupported true: those that cannot be measured here; false: those that went wrong or are
/// not measured yet
Table cells_without_result(const Reader& reader, const std::string& run_uuid, bool unsupported);

/// "480 cells: 470 ok, 10 unsupported".
std::string cell_counts(const Reader& reader, const std::string& run_uuid);

/// The row key of a run, as load_figures takes it.
std::vector<std::int64_t> run_scope(const Reader& reader, const std::string& run_uuid);

/// The id of a run by its row key.
std::string run_uuid_of(const Reader& reader, std::int64_t run);

}  // namespace dynamiccl
