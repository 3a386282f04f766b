#include "tuner/action/algorithm_rows.hpp"

#include <algorithm>
#include <array>

#include "core/vocabulary/backend.hpp"

namespace dynamiccl {
namespace {

using enum Backend;
using enum Collective;
using enum RanksRule;

// Open MPI 4.1 coll_tuned, MPICH 4.0 control variables, Gloo 2022-05 and our own collectives.
// basic_linear variants are kept: at two ranks they are a plain exchange.
constexpr std::array kRows{
    AlgorithmRow{openmpi, allreduce, "basic_linear"},
    AlgorithmRow{openmpi, allreduce, "nonoverlapping"},
    AlgorithmRow{openmpi, allreduce, "recursive_doubling"},
    AlgorithmRow{openmpi, allreduce, "ring"},
    AlgorithmRow{openmpi, allreduce, "segmented_ring", true},
    AlgorithmRow{openmpi, allreduce, "rabenseifner"},
    AlgorithmRow{openmpi, broadcast, "basic_linear"},
    AlgorithmRow{openmpi, broadcast, "chain", true, true},
    AlgorithmRow{openmpi, broadcast, "pipeline", true},
    AlgorithmRow{openmpi, broadcast, "split_binary_tree", true},
    AlgorithmRow{openmpi, broadcast, "binary_tree", true},
    AlgorithmRow{openmpi, broadcast, "binomial", true},
    AlgorithmRow{openmpi, broadcast, "knomial", true, true},
    AlgorithmRow{openmpi, broadcast, "scatter_allgather"},
    AlgorithmRow{openmpi, broadcast, "scatter_allgather_ring"},
    AlgorithmRow{openmpi, allgather, "linear"},
    AlgorithmRow{openmpi, allgather, "bruck"},
    AlgorithmRow{openmpi, allgather, "recursive_doubling", false, false, power_of_two},
    AlgorithmRow{openmpi, allgather, "ring"},
    AlgorithmRow{openmpi, allgather, "neighbor", false, false, even},
    AlgorithmRow{openmpi, allgather, "two_proc", false, false, two},
    AlgorithmRow{openmpi, reduce, "linear"},
    AlgorithmRow{openmpi, reduce, "chain", true, true},
    AlgorithmRow{openmpi, reduce, "pipeline", true},
    AlgorithmRow{openmpi, reduce, "binary", true},
    AlgorithmRow{openmpi, reduce, "binomial", true},
    AlgorithmRow{openmpi, reduce, "in-order_binary", true},
    AlgorithmRow{openmpi, reduce, "rabenseifner"},
    AlgorithmRow{openmpi, reduce_scatter, "basic_linear"},
    AlgorithmRow{openmpi, reduce_scatter, "recursive_doubling"},
    AlgorithmRow{openmpi, reduce_scatter, "recursive_halving"},
    AlgorithmRow{openmpi, reduce_scatter, "butterfly"},
    AlgorithmRow{openmpi, gather, "basic_linear"},
    AlgorithmRow{openmpi, gather, "binomial"},
    AlgorithmRow{openmpi, gather, "linear_sync", true},
    AlgorithmRow{openmpi, alltoall, "linear"},
    AlgorithmRow{openmpi, alltoall, "pairwise"},
    AlgorithmRow{openmpi, alltoall, "modified_bruck"},
    AlgorithmRow{openmpi, alltoall, "linear_sync"},
    AlgorithmRow{openmpi, alltoall, "two_proc", false, false, two},
    AlgorithmRow{mpich, allreduce, "nb"},
    AlgorithmRow{mpich, allreduce, "smp"},
    AlgorithmRow{mpich, allreduce, "recursive_doubling"},
    AlgorithmRow{mpich, allreduce, "reduce_scatter_allgather"},
    AlgorithmRow{mpich, broadcast, "binomial"},
    AlgorithmRow{mpich, broadcast, "nb"},
    AlgorithmRow{mpich, broadcast, "smp"},
    AlgorithmRow{mpich, broadcast, "scatter_recursive_doubling_allgather", false, false,
                 power_of_two},
    AlgorithmRow{mpich, broadcast, "scatter_ring_allgather"},
    AlgorithmRow{mpich, allgather, "brucks"},
    AlgorithmRow{mpich, allgather, "nb"},
    AlgorithmRow{mpich, allgather, "recursive_doubling", false, false, power_of_two},
    AlgorithmRow{mpich, allgather, "ring"},
    AlgorithmRow{mpich, reduce, "binomial"},
    AlgorithmRow{mpich, reduce, "nb"},
    AlgorithmRow{mpich, reduce, "smp"},
    AlgorithmRow{mpich, reduce, "reduce_scatter_gather"},
    AlgorithmRow{mpich, reduce_scatter, "noncommutative", false, false, power_of_two},
    AlgorithmRow{mpich, reduce_scatter, "recursive_doubling"},
    AlgorithmRow{mpich, reduce_scatter, "pairwise"},
    AlgorithmRow{mpich, reduce_scatter, "recursive_halving"},
    AlgorithmRow{mpich, reduce_scatter, "nb"},
    AlgorithmRow{mpich, gather, "binomial"},
    AlgorithmRow{mpich, gather, "nb"},
    AlgorithmRow{mpich, alltoall, "brucks"},
    AlgorithmRow{mpich, alltoall, "nb"},
    AlgorithmRow{mpich, alltoall, "pairwise"},
    AlgorithmRow{mpich, alltoall, "scattered"},
    AlgorithmRow{gloo, allreduce, "ring", true},
    AlgorithmRow{gloo, allreduce, "bcube"},
    AlgorithmRow{nccl, allreduce, "ring"},
    AlgorithmRow{nccl, allreduce, "tree"},
    AlgorithmRow{nccl, allreduce, "collnet_direct"},
    AlgorithmRow{nccl, allreduce, "collnet_chain"},
    AlgorithmRow{nccl, allreduce, "nvls"},
    AlgorithmRow{nccl, allreduce, "nvls_tree"},
    AlgorithmRow{nccl, broadcast, "ring"},
    AlgorithmRow{nccl, reduce, "ring"},
    AlgorithmRow{nccl, allgather, "ring"},
    AlgorithmRow{nccl, allgather, "nvls"},
    AlgorithmRow{nccl, allgather, "pat"},
    AlgorithmRow{nccl, reduce_scatter, "ring"},
    AlgorithmRow{nccl, reduce_scatter, "nvls"},
    AlgorithmRow{nccl, reduce_scatter, "pat"},
};

// Taken, and not searched: what does the same as another or not what the collective says, what is
// for one buffer alone, and what Open MPI 5 has.
constexpr std::array kFurther{
    AlgorithmRow{openmpi, allreduce, "allgather_reduce"},
    AlgorithmRow{openmpi, allgather, "bruck-k-fanout"},
    AlgorithmRow{openmpi, allgather, "sparbit"},
    AlgorithmRow{openmpi, allgather, "direct-messaging"},
    AlgorithmRow{openmpi, reduce, "knomial"},
    AlgorithmRow{openmpi, alltoallv, "basic_linear"},
    AlgorithmRow{openmpi, alltoallv, "pairwise"},
    AlgorithmRow{openmpi, scatter, "basic_linear"},
    AlgorithmRow{openmpi, scatter, "binomial"},
    AlgorithmRow{openmpi, scatter, "linear_nb"},
    AlgorithmRow{openmpi, barrier, "linear"},
    AlgorithmRow{openmpi, barrier, "double_ring"},
    AlgorithmRow{openmpi, barrier, "recursive_doubling"},
    AlgorithmRow{openmpi, barrier, "bruck"},
    AlgorithmRow{openmpi, barrier, "two_proc"},
    AlgorithmRow{openmpi, barrier, "tree"},
    AlgorithmRow{mpich, alltoall, "pairwise_sendrecv_replace"},
    AlgorithmRow{mpich, alltoallv, "nb"},
    AlgorithmRow{mpich, alltoallv, "scattered"},
};

/// Our own algorithms of what no library has, in host memory and on a GPU.
std::vector<std::string> own_names(Collective collective) {
  switch (collective) {
    case sendrecv:
      return {"send_recv"};
    case push:
      return {"send_recv", "reduce"};
    case pull:
      return {"send_recv", "broadcast"};
    case push_pull:
      return {"send_recv", "reduce_broadcast"};
    case allreduce:
      return {"own_ring", "two_level", "aggregator"};
    case allgather:
    case reduce_scatter:
      return {"own_ring"};
    default:
      return {};
  }
}

bool is_tuned_by_nccl(Collective collective) {
  return collective == allreduce || collective == broadcast || collective == reduce ||
         collective == allgather || collective == reduce_scatter;
}

/// "ring", "ring/ll", ...: a cell of NCCL may name the protocol, too.
void add_nccl_names(Collective collective, std::vector<std::string>& names) {
  if (!is_tuned_by_nccl(collective)) return;
  for (const char* algorithm : {"ring", "tree"}) {
    if (collective != allreduce && std::string_view(algorithm) == "tree") continue;
    names.emplace_back(algorithm);
    for (const char* protocol : {"/ll", "/ll128", "/simple"})
      names.push_back(std::string(algorithm) + protocol);
  }
}

}  // namespace

std::span<const AlgorithmRow> algorithm_rows() { return kRows; }

bool is_own_algorithm(std::string_view algorithm) {
  return algorithm == "own_ring" || algorithm == "two_level" || algorithm == "aggregator";
}

bool has_own_algorithm(std::string_view algorithm, Collective collective) {
  const auto names = own_names(collective);
  return is_own_algorithm(algorithm) &&
         std::find(names.begin(), names.end(), algorithm) != names.end();
}

bool has_library_call(Collective collective) { return facts_of(collective).library; }

std::vector<std::string> offered_algorithms(Backend backend, Collective collective) {
  const Backend library = backend_facts(backend).library;
  std::vector<std::string> names{"library"};
  const auto add = [&](const AlgorithmRow& row) {
    if (row.backend == library && row.collective == collective) names.emplace_back(row.name);
  };
  // What a search sets of NCCL by variables is more than what a cell may name.
  if (backend_facts(library).channels) {
    add_nccl_names(collective, names);
  } else {
    for (const AlgorithmRow& row : kRows) add(row);
    for (const AlgorithmRow& row : kFurther) add(row);
  }
  for (std::string& name : own_names(collective))
    if (!is_own_algorithm(name) || backend_facts(backend).own_ring)
      names.push_back(std::move(name));
  return names;
}

}  // namespace dynamiccl
