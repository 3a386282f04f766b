#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "workers/backends/mpi_algorithms.hpp"

namespace dynamiccl {
namespace {

/// MPICH's control variables carry no names, only numbers: the place in this list, as MPICH 4.0
/// reads the same names from the environment.
struct Row {
  Collective collective;
  std::string_view stem;
  std::array<std::string_view, 6> names;
};
constexpr std::array kRows{
    Row{Collective::allreduce,
        "ALLREDUCE",
        {"library", "nb", "smp", "recursive_doubling", "reduce_scatter_allgather"}},
    Row{Collective::broadcast,
        "BCAST",
        {"library", "binomial", "nb", "smp", "scatter_recursive_doubling_allgather",
         "scatter_ring_allgather"}},
    Row{Collective::reduce,
        "REDUCE",
        {"library", "binomial", "nb", "smp", "reduce_scatter_gather"}},
    Row{Collective::allgather,
        "ALLGATHER",
        {"library", "brucks", "nb", "recursive_doubling", "ring"}},
    Row{Collective::reduce_scatter,
        "REDUCE_SCATTER_BLOCK",
        {"library", "noncommutative", "recursive_doubling", "pairwise", "recursive_halving", "nb"}},
    Row{Collective::gather, "GATHER", {"library", "binomial", "nb"}},
    Row{Collective::alltoall,
        "ALLTOALL",
        {"library", "brucks", "nb", "pairwise", "pairwise_sendrecv_replace", "scattered"}},
    Row{Collective::alltoallv, "ALLTOALLV", {"library", "nb", "scattered"}},
};

const Row* row_of(Collective collective) {
  const auto row = std::find_if(kRows.begin(), kRows.end(),
                                [&](const Row& r) { return r.collective == collective; });
  return row == kRows.end() ? nullptr : row;
}

}  // namespace

std::vector<std::string> MpiAlgorithms::names(Collective collective) const {
  const Row* row = row_of(collective);
  if (row == nullptr) return {"library"};
  std::vector<std::string> names;
  for (const auto name : row->names) {
    if (!name.empty()) names.emplace_back(name);
  }
  return names;
}

std::optional<std::string> MpiAlgorithms::unknown_knob(const CallShape& shape) const {
  for (const auto& [name, value] : shape.knobs) {
    if (!control_.has(name))
      return fmt::format("MPICH has no control variable \"{}\"; {}", name, control_.suggest(name));
  }
  return std::nullopt;
}

std::optional<std::string> MpiAlgorithms::unsupported(const CallShape& shape) const {
  return unknown_knob(shape);
}

MpiChoice MpiAlgorithms::choose(const CallShape& shape) {
  overrides_.reset();
  std::map<std::string, std::string> wanted = shape.knobs;
  const Row* row = row_of(shape.collective);
  if (shape.algorithm != "library" && row != nullptr) {
    const auto place = std::find(row->names.begin(), row->names.end(), shape.algorithm);
    wanted[fmt::format("MPIR_CVAR_{}_INTRA_ALGORITHM", row->stem)] =
        std::to_string(place - row->names.begin());
    // The device's own compositions would pass the choice by: 0 means off.
    wanted[fmt::format("MPIR_CVAR_{}_DEVICE_COLLECTIVE", row->stem)] = "0";
    // A choice that does not suit the arguments would silently become another: 0 means error. But
    // smp calls the same collective inside, where the choice never suits.
    if (shape.algorithm != "smp") wanted["MPIR_CVAR_COLLECTIVE_FALLBACK"] = "0";
  }
  if (!wanted.empty()) overrides_ = std::make_unique<ControlOverrides>(control_, wanted);
  return {MPI_COMM_WORLD, shape.algorithm};
}

}  // namespace dynamiccl
