#pragma once

#include <cstdint>
#include <string>

#include "core/vocabulary/json.hpp"
#include "tuner/agents/policy_network.hpp"

namespace dynamiccl {

inline constexpr int kPolicyFileVersion = 1;

/// A policy as it is kept: network, what it was trained on, and how.
///
/// File: line 1 `DYNAMICCL-POLICY 1`; line 2 a JSON object {"shape", "features" (digest of the
/// state vector), "tensors" [{"name", "rows", "columns"}], "provenance", "sha256" of what follows};
/// then the tensors' values, column by column, 32-bit IEEE little-endian.
struct Policy {
  NetworkShape shape;
  Weights weights;
  std::string features;       ///< feature_digest() of the vector it was trained on
  nlohmann::json provenance;  ///< seed, steps, stages, rewards; no secrets

  [[nodiscard]] PolicyNetwork network() const { return PolicyNetwork(shape, weights); }
  /// First 16 digits of the weights' digest: what a decision records as its policy.
  [[nodiscard]] std::string version() const;
};

/// Small random weights; the scorers' skips favour large expected gains, so that an untrained
/// policy already searches sensibly.
/// @param columns of the state that it sees at most; 0: all that a policy sees. Of the features
///        those stay that keep_features() keeps, and the provenance names them
Policy untrained_policy(std::uint64_t seed, int columns = 0);

/// A file that comes with the program, in tuner/ in a folder above it or where it was built; ""
/// where there is none. @param variable of the environment that outranks it; "" = none does
std::string shipped_file(const std::string& variable, const std::string& below_tuner);

/// The policy that comes with the program: $DYNAMICCL_POLICY, else tuner/policy/pretrained.policy
/// in a folder above the program or where it was built; "" where there is none.
std::string shipped_policy();

/// `path`, or where it is empty the policy that comes with the program.
/// @throws Error(input) when there is none: an untrained network is never used unasked
std::string policy_or_throw(const std::string& path);

/// Written next to the target and renamed, so that a reader never sees half a file.
/// @throws Error(environment) when it cannot be written
void write_policy(const Policy& policy, const std::string& path);

/// @throws Error(input) when it cannot be read, Error(data) when it is damaged, of another
/// version, or made for another state vector
Policy read_policy(const std::string& path);

}  // namespace dynamiccl
