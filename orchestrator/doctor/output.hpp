#pragma once

#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "orchestrator/doctor/gpu_path.hpp"
#include "orchestrator/doctor/prove.hpp"

namespace dynamiccl {

/// What the doctor says of one environment.
struct Diagnosis {
  Symptoms symptoms;
  GpuPrediction gpu;
  std::vector<Finding> findings;
  std::vector<ProofResult> proofs;  ///< one per finding, empty without --prove
};

/// "4 cores, 24 GiB, ..., no GPU": the machine in one line.
std::string machine_line(const nlohmann::json& host);

std::string to_text(const Diagnosis& diagnosis);
std::string to_text(const ProofResult& proof);
nlohmann::json to_json(const Diagnosis& diagnosis);

/// The prediction for one profile, as text of several lines and as JSON.
std::string to_text(const EnvironmentProfile& profile, const GpuPrediction& prediction);
nlohmann::json to_json(const GpuPrediction& prediction);

}  // namespace dynamiccl
