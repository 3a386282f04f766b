#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// By what a job is given the algorithm that its library is to take.
enum class AlgorithmReach {
  own,         ///< by nothing that a job could load
  per_call,    ///< a plugin answers each call
  per_size,    ///< a file of rules: by collective, ranks and message size
  per_process  ///< variables: for all messages of a collective in the process
};

/// What decides the transport that ranks of one machine are expected to use.
enum class TransportRule {
  namespaces,  ///< the namespaces that they share, and settings
  gpu_paths,   ///< the paths between their GPUs
  build        ///< what the library was built with: nothing is foretold
};

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
  bool channels = false;   ///< its calls run on channels: protocol, transport and count are choices
  bool gpu_queue = false;  ///< its calls have a place in the GPU's own queue
  bool floor = false;      ///< its default is what no other backend's may be slower than
  bool host_memory = false;  ///< ranks that its launcher counts to different hosts share no memory
  AlgorithmReach algorithms = AlgorithmReach::own;
  TransportRule transport = TransportRule::namespaces;
  /// The variable that names its network interfaces; "" where a parameter does.
  std::string_view interface_variable = {};
  /// The only transport it has, whatever else the machine has; "" where it chooses.
  std::string_view only_transport = {};
};

inline constexpr std::array kBackendFacts{BackendFacts{.backend = Backend::openmpi,
                                                       .library = Backend::openmpi,
                                                       .worker = "dynamiccl-worker-openmpi",
                                                       .is_mpi = true,
                                                       .mca = true,
                                                       .host_memory = true,
                                                       .algorithms = AlgorithmReach::per_size},
                                          BackendFacts{.backend = Backend::mpich,
                                                       .library = Backend::mpich,
                                                       .worker = "dynamiccl-worker-mpich",
                                                       .is_mpi = true,
                                                       .algorithms = AlgorithmReach::per_process,
                                                       .interface_variable = "UCX_NET_DEVICES"},
                                          BackendFacts{.backend = Backend::cuda_aware_mpi,
                                                       .library = Backend::openmpi,
                                                       .worker = "dynamiccl-worker-openmpi",
                                                       .is_mpi = true,
                                                       .on_gpu = true,
                                                       .mca = true,
                                                       .host_memory = true,
                                                       .algorithms = AlgorithmReach::per_size,
                                                       .transport = TransportRule::build},
                                          BackendFacts{.backend = Backend::gloo,
                                                       .library = Backend::gloo,
                                                       .worker = "dynamiccl-worker",
                                                       .floor = true,
                                                       .interface_variable = "GLOO_SOCKET_IFNAME",
                                                       .only_transport = "tcp"},
                                          BackendFacts{.backend = Backend::nccl,
                                                       .library = Backend::nccl,
                                                       .worker = "dynamiccl-worker",
                                                       .on_gpu = true,
                                                       .gpu_per_rank = true,
                                                       .own_ring = false,
                                                       .channels = true,
                                                       .gpu_queue = true,
                                                       .algorithms = AlgorithmReach::per_call,
                                                       .transport = TransportRule::gpu_paths,
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

/// The one whose default is the floor of the same task on all others.
constexpr Backend floor_backend() {
  return std::ranges::find_if(kBackendFacts, &BackendFacts::floor)->backend;
}
static_assert(std::ranges::count_if(kBackendFacts, &BackendFacts::floor) == 1,
              "one backend is the floor");

/// An algorithm that a job is given holds for messages of all sizes of its collective.
constexpr bool is_for_all_sizes(Backend backend) {
  return backend_facts(backend).algorithms == AlgorithmReach::per_process;
}

/// An MPI whose tensors lie in host memory.
constexpr bool is_host_mpi(Backend backend) {
  return backend_facts(backend).is_mpi && !backend_facts(backend).on_gpu;
}

}  // namespace dynamiccl
