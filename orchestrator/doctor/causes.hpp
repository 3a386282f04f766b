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

/// A cause seen in a symptoms.
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
std::optional<Symptom> look_for_blocked_cma(const Symptoms& symptoms);
Fix fix_blocked_cma(const Symptoms& symptoms);
std::optional<Symptom> look_for_separate_pids(const Symptoms& symptoms);
Fix fix_separate_pids(const Symptoms& symptoms);
std::optional<Symptom> look_for_separate_users(const Symptoms& symptoms);
Fix fix_separate_users(const Symptoms& symptoms);
std::optional<Symptom> look_for_separate_memory(const Symptoms& symptoms);
Fix fix_separate_memory(const Symptoms& symptoms);
std::optional<Symptom> look_for_small_shm(const Symptoms& symptoms);
Fix fix_small_shm(const Symptoms& symptoms);
std::optional<Symptom> look_for_bridge(const Symptoms& symptoms);
Fix fix_bridge(const Symptoms& symptoms);
std::optional<Symptom> look_for_capped_link(const Symptoms& symptoms);
Fix fix_capped_link(const Symptoms& symptoms);
std::optional<Symptom> look_for_dealt_ranks(const Symptoms& symptoms);
Fix fix_dealt_ranks(const Symptoms& symptoms);
std::optional<Symptom> look_for_wrong_interface(const Symptoms& symptoms);
Fix fix_wrong_interface(const Symptoms& symptoms);
std::optional<Symptom> look_for_no_interface(const Symptoms& symptoms);
Fix fix_no_interface(const Symptoms& symptoms);
std::optional<Symptom> look_for_slow_setting(const Symptoms& symptoms);
Fix fix_slow_setting(const Symptoms& symptoms);
std::optional<Symptom> look_for_refused_setting(const Symptoms& symptoms);
Fix fix_refused_setting(const Symptoms& symptoms);
std::optional<Symptom> look_for_absent_folder(const Symptoms& symptoms);
Fix fix_absent_folder(const Symptoms& symptoms);
std::optional<Symptom> look_for_doubtful_setting(const Symptoms& symptoms);
Fix fix_doubtful_setting(const Symptoms& symptoms);
std::optional<Symptom> look_for_shared_core(const Symptoms& symptoms);
Fix fix_shared_core(const Symptoms& symptoms);
std::optional<Symptom> look_for_cpu_quota(const Symptoms& symptoms);
Fix fix_cpu_quota(const Symptoms& symptoms);
std::optional<Symptom> look_for_oversubscription(const Symptoms& symptoms);
Fix fix_oversubscription(const Symptoms& symptoms);
std::optional<Symptom> look_for_faulted_buffers(const Symptoms& symptoms);
Fix fix_faulted_buffers(const Symptoms& symptoms);
std::optional<Symptom> look_for_reference_blas(const Symptoms& symptoms);
Fix fix_reference_blas(const Symptoms& symptoms);
std::optional<Symptom> look_for_gpu_boundary(const Symptoms& symptoms);
Fix fix_gpu_boundary(const Symptoms& symptoms);
std::optional<Symptom> look_for_unusable_folder(const Symptoms& symptoms);
Fix fix_unusable_folder(const Symptoms& symptoms);
std::optional<Symptom> look_for_gpu_sockets(const Symptoms& symptoms);
Fix fix_gpu_sockets(const Symptoms& symptoms);

}  // namespace dynamiccl
