#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "orchestrator/doctor/patient.hpp"

namespace dynamiccl {

/// A cause seen in a patient.
struct Symptom {
  std::string evidence;           ///< the facts that show it
  std::vector<Backend> backends;  ///< whom it slows
};

/// What removes a cause.
struct Mend {
  std::string flag;  ///< what a user adds to a command or a profile
  /// The profile with the cause removed; nullopt: no profile can, or there is nothing to compare.
  std::optional<EnvironmentProfile> profile;
};

/// How a cause is proved: what is measured with the profile as it is and as mended.
struct Proof {
  std::vector<Backend> backends;  ///< the first of these that it slows is measured
  Collective collective = Collective::allreduce;
  Bytes size{std::uint64_t{64} << 20};
};

/// One cause of slowness: a row of the table in causes.cpp and a pair of functions beside it.
struct Cause {
  std::string_view id;
  std::string_view title;
  std::optional<Symptom> (*look)(const Patient& patient);
  Mend (*mend)(const Patient& patient);
  Proof (*proof)();
};

std::span<const Cause> all_causes();

/// A cause with what was seen of it.
struct Finding {
  const Cause* cause = nullptr;
  Symptom symptom;
  Mend mend;
};

/// Every cause that the patient shows, in the order of the table.
std::vector<Finding> find_causes(const Patient& patient);

// One file per group of causes; declared here for the table alone.
std::optional<Symptom> look_for_blocked_cma(const Patient& patient);
Mend mend_blocked_cma(const Patient& patient);
std::optional<Symptom> look_for_separate_pids(const Patient& patient);
Mend mend_separate_pids(const Patient& patient);
std::optional<Symptom> look_for_separate_users(const Patient& patient);
Mend mend_separate_users(const Patient& patient);
std::optional<Symptom> look_for_separate_memory(const Patient& patient);
Mend mend_separate_memory(const Patient& patient);
std::optional<Symptom> look_for_small_shm(const Patient& patient);
Mend mend_small_shm(const Patient& patient);
std::optional<Symptom> look_for_bridge(const Patient& patient);
Mend mend_bridge(const Patient& patient);
std::optional<Symptom> look_for_capped_link(const Patient& patient);
Mend mend_capped_link(const Patient& patient);
std::optional<Symptom> look_for_wrong_interface(const Patient& patient);
Mend mend_wrong_interface(const Patient& patient);
std::optional<Symptom> look_for_no_interface(const Patient& patient);
Mend mend_no_interface(const Patient& patient);
std::optional<Symptom> look_for_slow_setting(const Patient& patient);
Mend mend_slow_setting(const Patient& patient);
std::optional<Symptom> look_for_shared_core(const Patient& patient);
Mend mend_shared_core(const Patient& patient);
std::optional<Symptom> look_for_cpu_quota(const Patient& patient);
Mend mend_cpu_quota(const Patient& patient);
std::optional<Symptom> look_for_oversubscription(const Patient& patient);
Mend mend_oversubscription(const Patient& patient);
std::optional<Symptom> look_for_faulted_buffers(const Patient& patient);
Mend mend_faulted_buffers(const Patient& patient);
std::optional<Symptom> look_for_reference_blas(const Patient& patient);
Mend mend_reference_blas(const Patient& patient);
std::optional<Symptom> look_for_gpu_boundary(const Patient& patient);
Mend mend_gpu_boundary(const Patient& patient);
std::optional<Symptom> look_for_gpu_sockets(const Patient& patient);
Mend mend_gpu_sockets(const Patient& patient);

}  // namespace dynamiccl
