#include "tuner/export/folder_network.hpp"

#include <fmt/format.h>

namespace dynamiccl {

std::map<std::string, std::string> folder_network(const std::string& plugin,
                                                  const std::string& folder) {
  return {
      {"NCCL_NET_PLUGIN", plugin},
      // NCCL 2.28 forgets the name with the last communicator, unless somebody still refers to it.
      {"NCCL_NET_PLUGIN_REF_COUNT", "1"},
      {"NCCL_NET", kFolderNetwork},
      {"DYNAMICCL_SHARED_FOLDER", folder}};
}

std::vector<std::string> folder_mount(const std::string& folder) {
  return {fmt::format("mkdir -p -m 700 {}     on the host, as the user of the ranks", folder),
          fmt::format("docker run --volume {0}:{0} ...     every container, as all do "
                      "(docs/transport.md: Compose, Kubernetes, Apptainer, Slurm)",
                      folder)};
}

}  // namespace dynamiccl
