#pragma once

#include <optional>

#include "containers/cluster/cluster_options.hpp"
#include "profiles/table_reader.hpp"

namespace dynamiccl {

/// Reads [cluster]; nullopt where the file has none: all ranks on this machine.
std::optional<ClusterOptions> read_cluster(TableReader& root);

}  // namespace dynamiccl
