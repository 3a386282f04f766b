#pragma once

#include <string>
#include <vector>

#include "core/vocabulary/machine_model.hpp"

namespace dynamiccl {

/// A file of profiles/machines.
/// @param overrides `nodes=4096`, as `--set` gives them
/// @throws Error(input) with one `source:line:col: ...` line per mistake
MachineModel parse_machine_model(const std::string& text, const std::string& source,
                                 const std::vector<std::string>& overrides = {});

/// The path of a machine's file.
/// @param name_or_path a path ends in .toml
/// @throws Error(input) naming the machines there are
std::string machine_model_path(const std::string& name_or_path, const std::string& folder);

/// The file of a machine by its name or path.
/// @param folder of the files that have names
/// @throws Error(input) naming the machines there are
MachineModel read_machine_model(const std::string& name_or_path, const std::string& folder,
                                const std::vector<std::string>& overrides = {});

/// Names of the files in the folder, sorted.
std::vector<std::string> machine_model_names(const std::string& folder);

}  // namespace dynamiccl
