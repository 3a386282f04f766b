#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// How ranks of one machine that stay apart become one host to NCCL (docs/one-host.md).
DYN_NAMED_ENUM(
    OneHostWay, "way to one host", '-', none,
    settings,  ///< they have one memory folder at /dev/shm, and NCCL's own settings do the rest
    library);  ///< a preloaded library, and a memory folder anywhere

/// Where containers see the folder, unless somebody names another place.
inline constexpr const char* kUsualFolder = "/run/job";
/// Where the library lies in them, likewise.
inline constexpr const char* kUsualLibrary = "/opt/libdynamiccl-onehost.so";
/// The name that all ranks of the machine bear.
inline constexpr const char* kOneHostName = "one-host";
/// NCCL since then sends the others what it knows of its own GPU (22200 is 2.22.0); earlier ones
/// ask for the others', which a container does not see.
inline constexpr int kOneHostSince = 22200;

/// NCCL's variables where all ranks have one /dev/shm.
/// @param peers do they also see each other's GPUs and share a network namespace? Then the name
/// alone suffices; else NCCL's shared memory is left, without memory handles
std::map<std::string, std::string> one_host_settings(bool peers = false);
/// The variables of the preloaded library, which answers for NCCL's.
std::map<std::string, std::string> one_host_library(const std::string& library,
                                                    const std::string& folder);

/// Docker's option that gives a container a folder or file of the host; `inside` empty: at the same
/// place. Quoted for a shell.
std::string volume_option(const std::string& outside, const std::string& inside = "",
                          bool read_only = false);

/// What the ranks' containers need besides those variables, a command a line.
/// @param folder as they see it; @param library empty: none is loaded
std::vector<std::string> one_host_mount(const std::string& folder, const std::string& library);

/// The least that Docker, Compose, Kubernetes, Apptainer and pyxis must be given, a line for each.
std::vector<std::string> one_host_lines(OneHostWay way);

/// How a container that has one GPU gets the device nodes of all, and what that costs.
std::string all_nodes_advice();

}  // namespace dynamiccl
