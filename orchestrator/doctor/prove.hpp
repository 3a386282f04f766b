#pragma once

#include <string>
#include <vector>

#include "core/statistics/verdict.hpp"
#include "db/reader.hpp"
#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/run/console.hpp"

namespace dynamiccl {

/// How `doctor --prove` runs a fix against the profile as it was.
struct ProofOptions {
  std::string db;                 ///< where the runs are stored
  std::vector<std::string> argv;  ///< the command line, for provenance
  int launches = 6;               ///< of each profile, alternated; at least 3 for an interval
};

/// One profile's side of a proof.
struct ProofSide {
  std::string environment;
  double median_us = 0;  ///< of the launch medians; 0 where none counts
  int launches = 0;      ///< that count
  int failed = 0;        ///< launches that did not
  int timed_out = 0;     ///< of the failed ones
  int disturbed = 0;     ///< of those, on a machine that the noise gate found busy
  int noisy = 0;         ///< of those that count, flagged as disturbed by other work
  std::string reason;    ///< of the last that failed
  std::string asked;     ///< transport the profile lets one expect
  std::string used;      ///< transport the bytes took, "a, b" where launches differ
};

struct ProofResult {
  std::string cause;
  std::string impossible;  ///< why nothing was measured; then all below is empty
  std::string run_id;
  Backend backend{};
  Collective collective = Collective::allreduce;
  Bytes size;
  int ranks = 0;
  double timeout_s = 0;  ///< after which a launch counts as hung
  ProofSide before;
  ProofSide after;
  Ratio ratio;  ///< time after / time before
  Verdict verdict = Verdict::unclear;
  std::string note;  ///< how the verdict came about where there is no interval
};

/// The backend that proves this finding: the first of the proof's that the cause slows, then one
/// that was looked at; nullopt when nothing can.
std::optional<Backend> proving_backend(const Symptoms& symptoms, const Finding& finding);

/// The experiment that measures the symptoms' profile against the fixed one, as a file's text.
std::string proof_experiment(const Symptoms& symptoms, const Finding& finding, Backend backend,
                             int launches);

/// Reads what a stored run of proof_experiment() came to and judges it. Launches that did not come
/// to an end before but do after count as FASTER, with no interval; a failed launch after the fix
/// makes the verdict UNCLEAR, however fast the others are.
ProofResult judge_proof(const Reader& reader, const std::string& run_id, const ProofResult& known);

/// Measures before and after in one stored run with alternated launches.
/// @throws Error when store or machine fail as a whole
ProofResult prove(const Symptoms& symptoms, const Finding& finding, const ProofOptions& options,
                  Console& console);

}  // namespace dynamiccl
