#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "orchestrator/doctor/symptoms.hpp"

namespace dynamiccl {

/// What shows a cause at work on this machine.
struct Symptom {
  std::string evidence;           ///< the facts that show it
  std::vector<Backend> backends;  ///< whom it slows
};

/// What removes a cause.
struct Fix {
  std::string flag;  ///< what a user adds to a command or a profile
  /// The profile with the cause removed; nullopt: no profile can, or there is nothing to compare.
  std::optional<EnvironmentProfile> profile;
};

/// How a cause is proved: what is measured with the profile as it is and as fixed.
struct Proof {
  std::vector<Backend> backends;  ///< the first of these that it slows is measured
  Collective collective = Collective::allreduce;
  Bytes size{std::uint64_t{64} << 20};
};

/// One cause of slowness: a row of the table in causes.cpp and a pair of functions next to it.
struct Cause {
  std::string_view id;
  std::string_view title;
  std::optional<Symptom> (*look)(const Symptoms& symptoms);
  Fix (*fix)(const Symptoms& symptoms);
  Proof (*proof)();
  /// It may cost nothing here, or even gain: found is what --prove finds slower with it.
  bool doubtful = false;
  bool advice = false;  ///< costs time in every environment: nothing is wrong with this one
};

std::span<const Cause> all_causes();

/// A cause with what was seen of it.
struct Finding {
  const Cause* cause = nullptr;
  Symptom symptom;
  Fix fix;
};

/// How the folder looks that makes ranks one host, where they name one and nothing is wrong with
/// it; else "".
std::string folder_line(const Symptoms& symptoms);

/// What IMEX channels promise ranks that are hosts of their own to NCCL; "" without any.
std::string imex_line(const Symptoms& symptoms);

/// Every cause that the symptoms shows, in the order of the table.
std::vector<Finding> find_causes(const Symptoms& symptoms);

// One file per group of causes; declared here for the table alone.
using LookForCause = std::optional<Symptom>(const Symptoms& symptoms);
using FixOfCause = Fix(const Symptoms& symptoms);
/// Would the library's shared memory be UCX's, over PID namespaces apart? MPI_Init then fails where
/// no process of the rank's own namespace has the peer's number, and goes well where one does (UCX
/// 1.13), so that this is no way to take.
bool shares_by_luck(const Symptoms& symptoms, Backend backend);

/// Was that way open to the launch?
bool starts_by_luck(const Symptoms& symptoms, const BackendLook& look);

LookForCause look_for_blocked_cma, look_for_separate_pids, look_for_separate_users,
    look_for_separate_memory, look_for_small_shm, look_for_bridge, look_for_capped_link,
    look_for_dealt_ranks, look_for_wrong_interface, look_for_no_interface, look_for_slow_setting,
    look_for_refused_setting, look_for_absent_folder, look_for_doubtful_setting,
    look_for_shared_core, look_for_cpu_quota, look_for_oversubscription, look_for_faulted_buffers,
    look_for_reference_blas, look_for_gpu_boundary, look_for_unusable_folder, look_for_gpu_sockets;
FixOfCause fix_blocked_cma, fix_separate_pids, fix_separate_users, fix_separate_memory,
    fix_small_shm, fix_bridge, fix_capped_link, fix_dealt_ranks, fix_wrong_interface,
    fix_no_interface, fix_slow_setting, fix_refused_setting, fix_absent_folder,
    fix_doubtful_setting, fix_shared_core, fix_cpu_quota, fix_oversubscription, fix_faulted_buffers,
    fix_reference_blas, fix_gpu_boundary, fix_unusable_folder, fix_gpu_sockets;

}  // namespace dynamiccl
