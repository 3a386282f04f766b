#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "profiles/detect/regime.hpp"
#include "profiles/profile.hpp"

namespace dynamiccl {

/// What a call with large messages costs in page faults.
struct CallPages {
  Bytes size;         ///< of the message, as the cell counts it
  double faults = 0;  ///< per call, of the rank with most
  double page_bytes = 4096;
  bool kept = false;  ///< every rank's allocator takes large blocks from memory that it keeps
  std::string libc;   ///< "glibc 2.36"
  [[nodiscard]] double message_pages() const {
    return static_cast<double>(size.count()) / page_bytes;
  }
};

/// What one backend did in the environment: a short launch of the real worker.
struct BackendLook {
  Backend backend{};
  std::string impossible;             ///< why it was not started, "" = it was
  std::string failure;                ///< why its launch failed, "" = it went well
  bool timed_out = false;             ///< it failed by not coming to an end
  std::string unjudged;               ///< what a busy machine keeps from being known, and why
  std::vector<nlohmann::json> facts;  ///< of the ranks in that launch
  /// What profile and launcher set; inherited ones: Symptoms::facts, "environment", "variables".
  std::map<std::string, std::string> environment;
  std::map<std::string, std::string> mca;  ///< Open MPI's parameters
  bool many_hosts = false;    ///< its launcher takes the containers for hosts of their own
  std::string asked;          ///< transport that profile and settings let one expect
  std::string used;           ///< transport the bytes really took, "cma, tcp" where ranks differ
  std::string used_evidence;  ///< how that is known, "a; b" where ranks differ
  /// Of a launch that went well, for each size that was looked at: the fastest call.
  std::vector<Micros> fastest;
  std::uint64_t cma_refused = 0;  ///< refused process_vm_readv and process_vm_writev calls
  /// nullopt: data on GPUs, or calls that take too long here to be looked at.
  std::optional<CallPages> pages;
  Regime regime;

  [[nodiscard]] bool ran() const { return impossible.empty() && failure.empty(); }
  /// Did the bytes of some rank take this way?
  [[nodiscard]] bool moved_by(const std::string& transport) const {
    return (" " + used + ",").find(" " + transport + ",") != std::string::npos;
  }
};

/// Everything that is known of one environment; causes are functions of this alone.
struct Symptoms {
  EnvironmentProfile profile;
  int ranks = 2;
  nlohmann::json host;      ///< probe_host()
  std::string unavailable;  ///< why it cannot run here, with the command that fixes it; "" = it ran
  std::vector<nlohmann::json> facts;  ///< of dynamiccl-probe started as each rank
  Regime regime;                      ///< of those facts
  std::vector<BackendLook> looks;
  /// Without a launch nothing is known of what slows the backends, however few causes show.
  [[nodiscard]] bool any_ran() const {
    return std::any_of(looks.begin(), looks.end(), [](const auto& look) { return look.ran(); });
  }

  std::vector<std::string> problems;  ///< promises of the profile that do not hold, failed probes
};

}  // namespace dynamiccl
