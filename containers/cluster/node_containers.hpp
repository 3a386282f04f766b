#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "containers/cluster/cluster_session.hpp"
#include "containers/held_command.hpp"
#include "containers/running_environment.hpp"
#include "profiles/profile.hpp"

namespace dynamiccl {

/// Containers of Docker or Podman on the nodes of a cluster: one for each rank, or one for a node's
/// ranks, on the node's own network. Each is the child of a connection to its node that the
/// environment holds, and ends with it: whatever becomes of this program, no node keeps one.

/// Why this profile cannot be had so, with the command line that a cluster with what is missing
/// would be given; nullopt when it can. Pure.
std::optional<std::string> node_containers_reason(const EnvironmentProfile& profile,
                                                  const ClusterOptions& options);

/// Fills the plan's containers, shape, starts, scripts and kill commands.
/// @param placed the nodes with as many ranks each
void plan_node_containers(const EnvironmentProfile& profile, const StartRequest& request,
                          const std::vector<ClusterNode>& placed, EnvironmentPlan& plan);

/// The running ones of a plan.
class NodeContainers {
 public:
  /// Brings the image to the engines that lack it and starts every container of the plan.
  /// @throws Error(environment) naming the node, with the engine's own words; nothing stays
  NodeContainers(std::shared_ptr<ClusterSession> session, const EnvironmentPlan& plan,
                 const Progress& progress);
  ~NodeContainers();
  NodeContainers(const NodeContainers&) = delete;
  NodeContainers& operator=(const NodeContainers&) = delete;

  /// Engine and its version and image on every node, and the containers.
  [[nodiscard]] nlohmann::json provenance() const;
  /// @returns what is left on nodes that answer, "" = nothing
  std::string stop();

 private:
  void bring_image(const Progress& progress);
  void start_all(const Progress& progress);
  [[nodiscard]] std::vector<ClusterNode> nodes() const;

  std::shared_ptr<ClusterSession> session_;
  const EnvironmentPlan& plan_;
  std::vector<HeldCommand> held_;
  nlohmann::json engines_ = nlohmann::json::object();  ///< by node
  bool stopped_ = false;
};

}  // namespace dynamiccl
