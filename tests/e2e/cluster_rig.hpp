#pragma once

#include <string>
#include <vector>

#include "containers/command.hpp"
#include "core/vocabulary/json.hpp"

namespace dynamiccl {

// For the tests of clusters: the program, and four ranks of three libraries on two nodes.
inline constexpr const char* kProgram = DYNAMICCL_BINARY_DIR "/dynamiccl";
inline constexpr const char* kExperiment = DYNAMICCL_SOURCE_DIR "/experiments/two_nodes.toml";

/// Containers as nodes with munge, Slurm and sshd (cluster_rig.sh): a head, where programs are
/// started, and node1 to node4. Started by the first test of a process that needs them, for all.
class Rig {
 public:
  /// Skips the test where no such cluster can be.
  static const Rig& get();
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  /// A command on a host of the cluster, in the folder that all of them share.
  [[nodiscard]] CommandResult on(const std::string& host, std::vector<std::string> command) const;
  /// The program on the head, with a database of that name.
  [[nodiscard]] CommandResult program(const std::string& db,
                                      std::vector<std::string> arguments) const;
  /// Rows of read-only SQL; a query that fails ends the test.
  [[nodiscard]] nlohmann::json rows(const std::string& db, const std::string& sql) const;
  /// Slurm's jobs that run or wait, "" = none.
  [[nodiscard]] std::string queue() const;
  /// Caps the links of nodes at a rate, "1gbit"; "off" lifts it.
  void cap(const std::vector<std::string>& nodes, const std::string& rate) const;
  /// Makes packets of a node's link wait, "1mbit"; "off" lifts it.
  void delay(const std::string& node, const std::string& rate) const;
  /// Takes away ("add") and gives back ("del") a node's way to another.
  [[nodiscard]] CommandResult route(const std::string& node, const std::string& verb,
                                    const std::string& to) const;
  /// Writes a file into the shared folder.
  void file(const std::string& name, const std::string& text) const;
  [[nodiscard]] std::string shared() const { return folder_ + "/shared"; }

 private:
  Rig();
  ~Rig();

  std::string folder_;
  std::string why_;  ///< there is no cluster, "" = there is
};

/// All three launches of kExperiment measured and verified, ranks on node1 and node2, nothing left.
/// @param start "ssh", "srun" or "mpirun"
void check_measured(const Rig& rig, const std::string& db, const std::string& start);

}  // namespace dynamiccl
