#include "orchestrator/doctor/causes.hpp"

#include <array>

namespace dynamiccl {
namespace {

constexpr Bytes kLarge{std::uint64_t{64} << 20};
constexpr Bytes kMedium{std::uint64_t{16} << 20};
constexpr Bytes kSmall{std::uint64_t{4} << 20};

Proof by_mpi() { return {{Backend::mpich, Backend::openmpi}, Collective::allreduce, kLarge}; }
// Open MPI looks for shared memory on one of its hosts only, and containers are hosts to it.
Proof by_mpich() { return {{Backend::mpich}, Collective::allreduce, kLarge}; }
Proof by_openmpi() {
  return {{Backend::openmpi, Backend::mpich, Backend::gloo}, Collective::allreduce, kLarge};
}
Proof by_any() {
  return {{Backend::openmpi, Backend::gloo, Backend::mpich}, Collective::allreduce, kLarge};
}
Proof by_network() {
  return {{Backend::gloo, Backend::openmpi, Backend::mpich}, Collective::allreduce, kMedium};
}
// Where it sends more over the link than it has to, and can be set otherwise. Calls of more bytes
// take seconds each where many dealt ranks share a slow link.
Proof by_order() { return {{Backend::openmpi}, Collective::allreduce, kSmall}; }
// A hang shows with any message, and a launch that does not hang should not look like one.
Proof by_interface() {
  return {{Backend::openmpi, Backend::mpich, Backend::nccl, Backend::gloo},
          Collective::allreduce,
          kSmall};
}
Proof by_nccl() { return {{Backend::nccl}, Collective::allreduce, kLarge}; }

// One row per cause: a new one is a row here, its two functions in a file of this folder and their
// declarations.
constexpr std::array kCauses{
    Cause{"cma-blocked", "ranks may not read each other's memory (CMA)", look_for_blocked_cma,
          fix_blocked_cma, by_mpi},
    Cause{"pid-apart", "separate PID namespaces forbid CMA", look_for_separate_pids,
          fix_separate_pids, by_mpi},
    Cause{"user-apart", "separate user namespaces forbid CMA", look_for_separate_users,
          fix_separate_users, by_mpi},
    Cause{"ipc-apart", "ranks of one machine share no memory", look_for_separate_memory,
          fix_separate_memory, by_mpich},
    Cause{"small-shm", "/dev/shm is too small", look_for_small_shm, fix_small_shm, by_openmpi},
    Cause{"bridge", "TCP between ranks of one machine crosses a bridge", look_for_bridge,
          fix_bridge, by_network},
    Cause{"capped-link", "the containers' links are capped", look_for_capped_link, fix_capped_link,
          by_network},
    Cause{"dealt-ranks", "ranks are dealt to the nodes in turn: each hop of a ring crosses a link",
          look_for_dealt_ranks, fix_dealt_ranks, by_order},
    Cause{"wrong-interface", "a library uses a container bridge's interface",
          look_for_wrong_interface, fix_wrong_interface, by_interface},
    Cause{"no-interface", "a setting leaves a library no network interface", look_for_no_interface,
          fix_no_interface, by_interface},
    Cause{"slow-setting", "a setting keeps a library off the faster way", look_for_slow_setting,
          fix_slow_setting, by_mpi},
    Cause{"refused-setting", "a library does not start with a setting that it is given",
          look_for_refused_setting, fix_refused_setting, by_interface},
    Cause{"absent-folder", "a setting names a folder that is not there", look_for_absent_folder,
          fix_absent_folder, by_mpi},
    Cause{"doubtful-setting", "a setting may cost time, which --prove measures",
          look_for_doubtful_setting, fix_doubtful_setting, by_mpi, true},
    Cause{"one-core", "ranks share a core although others are free", look_for_shared_core,
          fix_shared_core, by_any},
    Cause{"cpu-quota", "a CPU quota gives the ranks less than a core each", look_for_cpu_quota,
          fix_cpu_quota, by_any},
    Cause{"oversubscribed", "more ranks than cores", look_for_oversubscription,
          fix_oversubscription, by_any},
    Cause{"faulted-buffers", "temporary buffers are faulted anew in every call",
          look_for_faulted_buffers, fix_faulted_buffers, by_openmpi, false, true},
    Cause{"reference-blas", "linear algebra by the reference BLAS", look_for_reference_blas,
          fix_reference_blas, by_any, false, true},
    Cause{"gpu-boundary", "NCCL cannot use the GPUs' own links", look_for_gpu_boundary,
          fix_gpu_boundary, by_nccl},
    Cause{"gpu-sockets", "NCCL's ranks of one machine use sockets", look_for_gpu_sockets,
          fix_gpu_sockets, by_nccl},
    Cause{"shared-folder", "the shared folder makes the ranks no one host",
          look_for_unusable_folder, fix_unusable_folder, by_nccl},
};

}  // namespace

std::span<const Cause> all_causes() { return kCauses; }

std::vector<Finding> find_causes(const Symptoms& symptoms) {
  std::vector<Finding> findings;
  for (const Cause& cause : kCauses)
    if (auto symptom = cause.look(symptoms))
      findings.push_back({&cause, *std::move(symptom), cause.fix(symptoms)});
  return findings;
}

}  // namespace dynamiccl
