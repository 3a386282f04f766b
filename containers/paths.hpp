#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

/// Where images, Apptainer and the private engine are kept: $DYNAMICCL_CACHE, else
/// /var/cache/dynamiccl for root, else ${XDG_CACHE_HOME:-~/.cache}/dynamiccl.
std::string cache_folder();

/// Where made things are looked for, in order: cache_folder(), then the one root fills.
std::vector<std::string> cache_folders();

/// /tmp/dynamiccl-UID, or $DYNAMICCL_RUN_FOLDER: one folder per started environment.
std::string run_folder_root();

bool is_root();

}  // namespace dynamiccl
