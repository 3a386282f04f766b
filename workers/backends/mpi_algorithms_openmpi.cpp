#include <fmt/format.h>

#include "workers/backends/mpi_algorithms.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kDynamicRules = "coll_tuned_use_dynamic_rules";

/// The control variable that forces a collective's algorithm; "" where there is none.
std::string variable_of(Collective collective) {
  switch (collective) {
    case Collective::broadcast:
      return "coll_tuned_bcast_algorithm";
    case Collective::reduce:
    case Collective::allreduce:
    case Collective::allgather:
    case Collective::gather:
    case Collective::alltoall:
    case Collective::alltoallv:
    case Collective::scatter:
    case Collective::barrier:
      return fmt::format("coll_tuned_{}_algorithm", name_of(collective));
    case Collective::reduce_scatter:
      return "coll_tuned_reduce_scatter_block_algorithm";
    // That of allgatherv is for reading alone (4.1.4): a launch sets it, by [knobs.openmpi.mca].
    default:
      return "";
  }
}

std::string key_of(const CallShape& shape) {
  std::string key = fmt::format("{} {}", name_of(shape.collective), shape.algorithm);
  for (const auto& [name, value] : shape.knobs) key += fmt::format(" {}={}", name, value);
  return key;
}

}  // namespace

std::vector<std::string> MpiAlgorithms::names(Collective collective) const {
  std::vector<std::string> names{"library"};
  for (auto& name : control_.enumerators(variable_of(collective))) {
    if (name != "ignore") names.push_back(std::move(name));
  }
  return names;
}

std::optional<std::string> MpiAlgorithms::unknown_knob(const CallShape& shape) const {
  for (const auto& [name, value] : shape.knobs) {
    if (!control_.has(name)) {
      return fmt::format("Open MPI has no control variable \"{}\"; {}", name,
                         control_.suggest(name));
    }
  }
  return std::nullopt;
}

std::optional<std::string> MpiAlgorithms::unsupported(const CallShape& shape) const {
  if (shape.algorithm == "library" && shape.knobs.empty()) return std::nullopt;
  if (control_.read(kDynamicRules) != "1") {
    return fmt::format(
        "Open MPI obeys a forced algorithm only when the launch sets {0}; add "
        "--mca {0} 1",
        kDynamicRules);
  }
  return unknown_knob(shape);
}

MpiChoice MpiAlgorithms::choose(const CallShape& shape) {
  if (shape.algorithm == "library" && shape.knobs.empty()) return {MPI_COMM_WORLD, "library"};
  const std::string key = key_of(shape);
  auto entry = pool_.find(key);
  if (entry == pool_.end()) {
    std::map<std::string, std::string> wanted = shape.knobs;
    if (shape.algorithm != "library") wanted[variable_of(shape.collective)] = shape.algorithm;
    const ControlOverrides overrides(control_, wanted);
    MPI_Comm comm = MPI_COMM_NULL;
    if (MPI_Comm_dup(MPI_COMM_WORLD, &comm) != MPI_SUCCESS)
      throw Error(ErrorKind::environment, "MPI_Comm_dup failed");
    entry = pool_.emplace(key, comm).first;
  }
  return {entry->second, shape.algorithm};
}

}  // namespace dynamiccl
