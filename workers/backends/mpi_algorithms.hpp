#pragma once

#include <mpi.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "workers/backends/mpi_control.hpp"
#include "workers/library_calls.hpp"

namespace dynamiccl {

/// The communicator on which the chosen algorithm is in force.
struct MpiChoice {
  MPI_Comm comm = MPI_COMM_WORLD;
  std::string applied;
};

/// An MPI library's algorithm choices through its control variables; one implementation per
/// flavour is compiled in (mpi_algorithms_<flavour>.cpp). A cell's knobs are control variables by
/// name.
///
/// Open MPI reads them when a communicator is made, so every choice is a duplicate of
/// MPI_COMM_WORLD, kept for later cells; they act only when the launch has set
/// coll_tuned_use_dynamic_rules. MPICH reads them on every call, so they are set for the process
/// and set back by the next choice.
class MpiAlgorithms {
 public:
  [[nodiscard]] std::vector<std::string> names(Collective collective) const;
  [[nodiscard]] std::optional<std::string> unsupported(const CallShape& shape) const;
  /// Ranks: all.
  MpiChoice choose(const CallShape& shape);
  /// Gives the communicators of all choices back, before the library ends. Ranks: all, none of
  /// which has a call under way.
  void free() {
    for (auto& [key, comm] : pool_) MPI_Comm_free(&comm);
    pool_.clear();
  }

 private:
  [[nodiscard]] std::optional<std::string> unknown_knob(const CallShape& shape) const;

  MpiControl control_;
  std::map<std::string, MPI_Comm> pool_;         ///< Open MPI: by collective, algorithm and knobs
  std::unique_ptr<ControlOverrides> overrides_;  ///< MPICH: in force until the next choice
};

}  // namespace dynamiccl
