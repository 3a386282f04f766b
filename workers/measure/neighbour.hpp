#pragma once

#include <sys/types.h>
#include <string>
#include <vector>

#include "workers/communicator.hpp"

namespace dynamiccl {

/// Of a rank's environment: which neighbour its cells are measured next to.
inline constexpr const char* kNeighbourVariable = "DYNAMICCL_NEIGHBOUR";
/// The worker's argument that makes it a neighbour.
inline constexpr const char* kNeighbourArgument = "--neighbour";

/// Other work next to the ranks of a launch, from before their first cell to after their last: a
/// process next to each rank, in the rank's container where it is in one.
///   compute   multiplies matrices, with a thread for each core that the rank has to itself; where
///             the rank has a GPU on that GPU, which the two take in turns
///   link      sends to the next rank's neighbour as fast as the network takes it
///   training  both in turn, as a job's ranks do in their steps: 20 ms of multiplying, then 8 MiB
///             to the next and 8 MiB from the one before; on a rank's GPU, through host memory
class Neighbour {
 public:
  /// Collective. @param kind "" or "none": none is started
  /// Returns when every rank's neighbour works.
  /// @throws Error(input) for another kind, Error(environment) where no process can be had or one
  /// does not come to work
  Neighbour(Communicator& comm, const std::string& kind);
  ~Neighbour();
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  [[nodiscard]] const std::string& kind() const { return kind_; }  ///< "" = none
  /// Ends it, every rank's at once. Collective where there is one. @returns seconds of CPU time
  /// that it has taken, user and kernel; 0 where there is none
  /// @throws Error(environment) when any rank's had ended by itself: cells were without it
  double end(Communicator& comm);

 private:
  void await(Communicator& comm, std::vector<std::string> arguments, int listener = -1);
  double stop();

  std::string kind_;
  pid_t child_ = -1;
};

/// The neighbour that this rank's environment asks for; "" = none.
std::string wanted_neighbour();

/// What the child does: `arguments` are those behind kNeighbourArgument. Ends with its parent.
/// @returns an exit code, when there is nothing to do
int be_neighbour(int count, char** arguments);

}  // namespace dynamiccl
