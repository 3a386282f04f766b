#pragma once

#include "profiles/detect/probes/known.hpp"

namespace dynamiccl {

/// What NVML tells of the GPUs, loaded at run time so that nothing depends on a driver:
/// {"driver_version", "cuda_driver_version", "devices": [{"name", "uuid", "pci", "memory_bytes",
/// "mig", "compute_mode", "pcie_generation", "pcie_width", "nvlinks_active", "nvlink_version",
/// "nvlink_mbyte_per_s" (per link and direction), "nvlink_remote": "switch" or "gpu", "fabric"}],
/// "p2p": one row per GPU of "self", "nvlink", "pcie", "none" or "unknown"}.
/// Blocking: about 10 ms to start and 10 ms per GPU.
Known<nlohmann::json> read_gpus_by_nvml();

}  // namespace dynamiccl
