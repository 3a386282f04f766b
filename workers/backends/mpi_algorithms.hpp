#pragma once

#include <mpi.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "workers/communicator.hpp"

namespace dynamiccl {

/// The communicator on which the chosen algorithm is in force.
struct MpiChoice {
  MPI_Comm comm = MPI_COMM_WORLD;
  std::string applied;
};

/// An MPI library's algorithm choices through its MPI_T control variables: one implementation per
/// flavour is compiled in.
///
/// Open MPI reads them when a communicator is made, so every choice is a duplicate of
/// MPI_COMM_WORLD, kept for later cells; they act only when the launch has set
/// coll_tuned_use_dynamic_rules. MPICH reads them on every call, so they are set for the process
/// and set back by the next choice. A cell's knobs are control variables by name.
class MpiAlgorithms {
 public:
  MpiAlgorithms();
  ~MpiAlgorithms();
  MpiAlgorithms(const MpiAlgorithms&) = delete;
  MpiAlgorithms& operator=(const MpiAlgorithms&) = delete;

  [[nodiscard]] std::vector<std::string> names(Collective collective) const;
  [[nodiscard]] std::optional<std::string> unsupported(const CallShape& shape) const;
  MpiChoice choose(const CallShape& shape);

 private:
  std::map<std::string, MPI_Comm> pool_;
};

}  // namespace dynamiccl
