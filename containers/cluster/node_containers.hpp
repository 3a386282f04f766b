#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "containers/cluster/cluster_session.hpp"
#include "containers/engine.hpp"
#include "containers/held_command.hpp"
#include "containers/running_environment.hpp"
#include "core/vocabulary/json.hpp"
#include "profiles/profile.hpp"

namespace dynamiccl {

/// Containers of Docker or Podman on the nodes of a cluster: one for each rank, or one for a node's
/// ranks, on the node's own network. Each is the child of a connection to its node that the
/// environment holds, and ends with it, also when this program is killed. Where the machine of the
/// program or the network to it is gone, that takes until the node's side notices; the next start
/// on the node removes what runs of this machine that are over have left.

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
  /// Ends them all, a node that does not answer delays no other.
  /// @returns sentences on what is left, and on nodes that could not be asked, "" = nothing is
  std::string stop();

 private:
  void bring_image(const Progress& progress);
  void import_image_on(const std::vector<ClusterNode>& lacking, const Engine& engine,
                       const Progress& progress);
  /// Containers on these nodes whose program ran on this machine and is no more, and images that
  /// such a one was sending.
  void remove_abandoned(const Progress& progress);
  void remove_on(const ClusterNode& node, const std::string& verb,
                 const std::vector<std::string>& names, const std::string& what,
                 const Progress& progress);
  void start_all(const Progress& progress);
  /// @param wave numbers of containers that are started at once
  void start_wave(const std::vector<std::size_t>& wave, const Progress& progress);
  [[nodiscard]] std::vector<ClusterNode> nodes() const;

  std::shared_ptr<ClusterSession> session_;
  const EnvironmentPlan& plan_;
  std::vector<HeldCommand> held_;
  nlohmann::json engines_ = nlohmann::json::object();  ///< by node
  bool stopped_ = false;
  std::string left_;  ///< what stop() has said
};

}  // namespace dynamiccl
