#pragma once

#include <optional>
#include <string>
#include <vector>

#include "containers/cluster/cluster_options.hpp"
#include "profiles/machine_declarations.hpp"
#include "profiles/table_reader.hpp"

namespace dynamiccl {

/// `hosts` as files and command lines have it: a list, or the name of one that launchers take.
/// @throws Error(input) with what is wrong
std::vector<ClusterNode> hosts_of(const std::vector<std::string>& texts);

/// A program to be called in ssh's place. @throws Error(input) when launchers could not name it
std::string remote_shell_of(const std::string& program);

/// Reads [cluster]; nullopt where the file has none: all ranks on this machine.
std::optional<ClusterOptions> read_cluster(TableReader& root);

/// Reads [machine], or the file that it names; nothing declared where the file has none.
MachineDeclarations read_machine(TableReader& root);

}  // namespace dynamiccl
