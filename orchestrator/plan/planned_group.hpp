#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "core/wire/run_config.hpp"

namespace dynamiccl {

struct PlannedGroup;

/// What this machine and this build can do: decides which cells are impossible. Filled by
/// inspect_machine(), or by hand in tests.
struct Capabilities {
  /// Why a backend cannot run here, by backend; absent = it can.
  std::map<Backend, std::string> backend_reasons;
  /// Why a profile cannot run here, by name; absent = it can.
  std::map<std::string, std::string> environment_reasons;
  /// Why a backend cannot run in a profile although both could.
  std::map<std::pair<std::string, Backend>, std::string> pair_reasons;
  /// Why a cell of a simulated environment cannot be, by the environment's name; "" = it can.
  std::map<std::string, std::function<std::string(const PlannedGroup&, const WorkCell&)>> simulated;
  /// Why no training cell can run with a backend; absent = it can.
  std::map<Backend, std::string> training_backend_reasons;
  /// Why asking for huge pages changes nothing here (why_no_huge_pages()); "" = it does.
  std::string huge_pages_reason;
  /// Why so many ranks do not fit onto the nodes of a cluster, "" = they do; empty = one machine.
  std::function<std::string(int ranks)> why_not_placed;
  /// Over how many nodes of a cluster so many ranks go that fit; empty = one machine.
  std::function<int(int ranks)> nodes_of;
  /// A launch need not say that Open MPI is to take forced algorithms: the environment or a file of
  /// parameters does, or, on other machines, may.
  bool may_force_algorithms = false;
  int gpus = 0;
  Bytes memory{UINT64_MAX};  ///< what all ranks' buffers together may take
};

/// One cell: what a worker measures, or the reason why it cannot be measured here.
struct PlannedCell {
  WorkCell work;
  std::string impossible;  ///< reason; empty = to be measured
  bool rounded = false;    ///< of another size than asked for, which does not split over the ranks
};

/// Ranks that start together: environment x backend x architecture x ranks x launch-scope knobs.
struct PlannedGroup {
  std::string id;
  std::string environment;  ///< profile name
  Backend backend{};
  Architecture architecture = Architecture::ring;
  int ranks = 1;
  int nodes = 1;                             ///< machines that the ranks are placed on
  std::map<std::string, std::string> knobs;  ///< launch scope: env, mca, malloc; no "default"
  std::vector<PlannedCell> cells;

  [[nodiscard]] std::size_t possible_cells() const;
  [[nodiscard]] std::size_t rounded_cells() const;
  /// True when a cell trains, so that the ranks are trainers.
  [[nodiscard]] bool trains() const;
};

struct Plan {
  std::vector<PlannedGroup> groups;

  [[nodiscard]] std::size_t cell_count() const;
  [[nodiscard]] std::size_t possible_cells() const;
  [[nodiscard]] bool trains() const;
};

}  // namespace dynamiccl
