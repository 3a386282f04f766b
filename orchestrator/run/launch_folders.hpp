#pragma once

#include <string>
#include <vector>

#include "db/reader.hpp"

namespace dynamiccl {

/// Where a run keeps its launches unless --out names a place: `runs` next to the database; where
/// another user has made that and this one cannot keep anything there, `runs-NUMBER`, by the number
/// of this user.
std::string runs_folder(const std::string& db);
/// Both: which one it is may have changed since.
std::vector<std::string> runs_folders(const std::string& db);

/// Says in a launch's folder that its outcome could not be stored: its records are all there is of
/// it, and nothing removes them.
void keep_launch_folder(const std::string& folder);

/// Removes the folders of launches that no row of the database tells of: a kill came between the
/// folder and the row. Runs that are being measured, and runs of other databases, are left alone.
/// @param runs_folder with a folder per run, by its id
/// @returns the folders that are gone
std::vector<std::string> remove_rowless_folders(const Reader& reader,
                                                const std::string& runs_folder);

}  // namespace dynamiccl
