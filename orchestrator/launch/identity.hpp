#pragma once

#include <string>
#include <string_view>

namespace dynamiccl {

/// A random UUID (version 4) from the kernel's generator.
std::string random_uuid();

/// Version, source revision and "dirty" when the tree had changes: "0.1.0 (1a2b3c4d5e6f, dirty)".
std::string tool_version();

/// Compiler and flags class of this build: "GNU 12.2.0, Release".
std::string build_description();

/// What `--version` prints: version and build, then which workers, trainers and other parts lie
/// next to the program, and which do not.
std::string installation_text();

/// Why a worker, a trainer or another part is not at this path, for people: where the folder is no
/// build's, the package that brings it.
/// @param how_to_build "its library was not found when this build was configured"
std::string why_part_is_absent(const std::string& path, std::string_view how_to_build);

/// Folder of the running executable: the workers lie next to it.
std::string program_folder();

/// A file or folder that comes with the program, by its path in the source tree:
/// "profiles/environments". Looked for in the program's folder and those above it, there also in
/// share/dynamiccl: so an installed program finds it, and one that lies built in its source tree.
/// @throws Error(environment) where it is in none of them
std::string data_path(const std::string& name);

}  // namespace dynamiccl
