#pragma once

#include <string>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// Why NCCL's protocol LL128 must not be asked for between this machine's GPUs; "": it may be. NCCL
/// itself takes it where every pair is joined by NVLink and all GPUs are of one of the
/// architectures that it was proved on (compute capability 7.0, 8.0, 9.0, 10.0); a variable that
/// names it overrides that, and its 128-byte stores are then torn: wrong sums, no error.
/// @param facts FactsRecord::facts of this machine (probe_facts())
std::string why_no_ll128(const nlohmann::json& facts);

}  // namespace dynamiccl
