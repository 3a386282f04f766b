#pragma once

#include "profiles/detect/known.hpp"

namespace dynamiccl {

/// What NVML tells of the GPUs, loaded at run time so that nothing depends on a driver:
/// {"driver_version", "cuda_driver_version", "devices": [{"name", "uuid", "pci", "memory_bytes",
/// "mig", "compute_mode", "pcie_generation", "pcie_width", "nvlinks_active", "nvlink_version",
/// "nvlink_mbyte_per_s" (per link and direction), "nvlink_remotes": {"switch": 18}, "fabric"}],
/// "p2p": one row per GPU of "self", "nvlink", "pcie", "none" or "unknown"}.
/// Blocking: tens of milliseconds where a driver has to wake up.
Known<nlohmann::json> read_gpus_by_nvml();

}  // namespace dynamiccl
