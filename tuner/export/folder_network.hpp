#pragma once

#include <map>
#include <string>
#include <vector>

namespace dynamiccl {

/// What NCCL_NET names the network through a shared folder (tuner/transport).
inline constexpr const char* kFolderNetwork = "DynamICCL";
/// Where containers see the folder, unless somebody names another place.
inline constexpr const char* kUsualFolder = "/run/job";
/// Channels that large messages need there; the plugin's tuner caps them for small ones.
inline constexpr const char* kFolderChannels = "8";

/// Variables that make NCCL's network go through `folder`, alike on all ranks.
/// @param plugin where ranks find libdynamiccl-nccl-plugin.so
std::map<std::string, std::string> folder_network(const std::string& plugin,
                                                  const std::string& folder);

/// Docker's option that gives a container a folder or file of the host; `inside` empty: at the same
/// place. Quoted for a shell.
std::string volume_option(const std::string& outside, const std::string& inside = "",
                          bool read_only = false);

/// What the ranks' containers need besides those variables, a command a line (docs/transport.md).
std::vector<std::string> folder_mount(const std::string& folder, const std::string& plugin);

}  // namespace dynamiccl
