#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// What the rest of the program needs to know of a backend. A place that would compare several
/// backends asks the row; one that is about a single library may name it.
struct BackendFacts {
  Backend backend;
  Backend library;            ///< whose algorithms, parameters and exports it takes
  std::string_view worker;    ///< the program that its ranks are
  bool is_mpi = false;        ///< started by an MPI's launcher
  bool on_gpu = false;        ///< its tensors lie in GPU memory: it needs one
  bool gpu_per_rank = false;  ///< refuses two ranks on a GPU
  bool own_ring = true;       ///< the rings of this program run over it, as algorithm "own_ring"
  bool mca = false;           ///< takes settings of the scope mca
  /// The variable that names its network interfaces; "" where a parameter does.
  std::string_view interface_variable = {};
  /// The only transport it has, whatever else the machine has; "" where it chooses.
  std::string_view only_transport = {};
};

inline constexpr std::array kBackendFacts{BackendFacts{.backend = Backend::openmpi,
                                                       .library = Backend::openmpi,
                                                       .worker = "dynamiccl-worker-openmpi",
                                                       .is_mpi = true,
                                                       .mca = true},
                                          BackendFacts{.backend = Backend::mpich,
                                                       .library = Backend::mpich,
                                                       .worker = "dynamiccl-worker-mpich",
                                                       .is_mpi = true,
                                                       .interface_variable = "UCX_NET_DEVICES"},
                                          BackendFacts{.backend = Backend::cuda_aware_mpi,
                                                       .library = Backend::openmpi,
                                                       .worker = "dynamiccl-worker-openmpi",
                                                       .is_mpi = true,
                                                       .on_gpu = true,
                                                       .mca = true},
                                          BackendFacts{.backend = Backend::gloo,
                                                       .library = Backend::gloo,
                                                       .worker = "dynamiccl-worker",
                                                       .interface_variable = "GLOO_SOCKET_IFNAME",
                                                       .only_transport = "tcp"},
                                          BackendFacts{.backend = Backend::nccl,
                                                       .library = Backend::nccl,
                                                       .worker = "dynamiccl-worker",
                                                       .on_gpu = true,
                                                       .gpu_per_rank = true,
                                                       .own_ring = false,
                                                       .interface_variable = "NCCL_SOCKET_IFNAME"}};

constexpr const BackendFacts& backend_facts(Backend backend) {
  for (const BackendFacts& row : kBackendFacts)
    if (row.backend == backend) return row;
  return kBackendFacts.front();  // never: every name has a row, as the next line says
}
static_assert(std::ranges::all_of(NameTable<Backend>::entries,
                                  [](const auto& named) {
                                    return backend_facts(named.value).backend == named.value;
                                  }),
              "a backend without a row of facts");

/// An MPI whose tensors lie in host memory.
constexpr bool is_host_mpi(Backend backend) {
  return backend_facts(backend).is_mpi && !backend_facts(backend).on_gpu;
}

}  // namespace dynamiccl
