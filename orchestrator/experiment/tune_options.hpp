#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "orchestrator/experiment/expression.hpp"
#include "tuner/action/spaces.hpp"
#include "tuner/state/state_vocabulary.hpp"

namespace dynamiccl {

/// What a backend's settings may be: [tune.BACKEND].
struct TuneBackend {
  SpaceOptions space;
  /// Algorithms by collective; a collective that is not named has all that are known.
  std::map<Collective, std::vector<std::string>> algorithms;
};

/// [tune] of an experiment file: which settings are searched and how results are held to account.
/// Everything is committed before anything is measured.
struct TuneOptions {
  bool given = false;  ///< the file has a [tune] table; without one every default below holds
  std::vector<Expression> held_out;  ///< cells that no choice of ours was made on
  int sweep_launches = 6;            ///< of every arm by `--sweep`
  int confirm_launches = 10;         ///< of default and choice, fresh
  double budget = 0.25;              ///< evaluations of a search, as a share of exhaustive's
  /// Time that the workload leaves for a call, by which `lossless_saturated` is judged; 0: of a
  /// training step what its computation takes, of a call not known.
  Micros allowed_time;
  /// Whose calls the cells stand for: what the workload's calls are, a lone one does not say.
  std::optional<ParallelismMode> parallelism;
  /// Of this machine, not of the file: asking for huge pages changes something here.
  bool huge_pages = true;
  /// Of this machine, not of the file: NCCL's LL128 is safe between its GPUs (why_no_ll128()).
  bool ll128 = false;
  std::map<Backend, TuneBackend> backends;
  /// Of the command, not of the file: search also what no job can load (Reach::own).
  bool own = false;
};

}  // namespace dynamiccl
