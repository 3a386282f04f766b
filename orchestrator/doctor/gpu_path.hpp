#pragma once

#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "profiles/profile.hpp"
#include "tuner/export/one_host.hpp"

namespace dynamiccl {

/// Which way NCCL's bytes will take between ranks of one machine.
enum class GpuPath {
  none,        ///< no GPU, or one rank
  p2p,         ///< GPU to GPU, over NVLink or PCIe
  shm,         ///< staged in host memory that both ranks map
  net,         ///< network transport, sockets or RDMA, although one machine holds both
  impossible,  ///< NCCL gives up
};
template <>
struct NameTable<GpuPath> {
  static constexpr std::string_view what = "GPU path";
  static constexpr std::array entries{Named{GpuPath::none, "none"}, Named{GpuPath::p2p, "P2P"},
                                      Named{GpuPath::shm, "SHM"}, Named{GpuPath::net, "NET"},
                                      Named{GpuPath::impossible, "impossible"}};
};

/// NCCL 2.1x and later make a segment of this size in /dev/shm for every rank with a proxy thread,
/// and give up where it does not fit ("Error while creating shared memory segment ... size
/// 9637888").
inline constexpr std::uint64_t kNcclSegmentBytes = 9'637'888;

/// One thing that keeps NCCL from a faster path.
struct GpuObstacle {
  std::string what;  ///< "host hash", "/dev/shm device", "GPU visibility", ...
  std::string why;
  std::string flag;  ///< what removes it; "" = nothing in the profile does
};

struct GpuPrediction {
  GpuPath path = GpuPath::none;
  std::string link;                    ///< "nvlink", "pcie", "unknown"; "" unless p2p
  std::vector<GpuObstacle> obstacles;  ///< all of them must go
  std::string summary;                 ///< one sentence
};

/// Foretells NCCL's transport between ranks of one machine from the profile before anything runs,
/// by the rules of NCCL's init, transport/p2p and transport/shm.
/// @param machine facts of the machine: probe_host(), or what dynamiccl-probe printed there
GpuPrediction predict_gpu_path(const EnvironmentProfile& profile, const nlohmann::json& machine,
                               int ranks);

/// @returns whether ranks of this profile see any of the machine's GPUs
bool shows_gpus(const EnvironmentProfile& profile, const nlohmann::json& machine);

/// The profile with the flags that give it P2P: one network, IPC and UTS namespace and all GPUs
/// visible.
EnvironmentProfile with_gpu_path(EnvironmentProfile profile);

/// How ranks that stay as isolated as they are become one host: by the library where they see all
/// GPUs, as settings alone lead to no peer's memory.
OneHostWay one_host_way(const EnvironmentProfile& profile);

/// The profile whose ranks stay as isolated as they are, and are one host to NCCL.
EnvironmentProfile with_one_host(EnvironmentProfile profile);

}  // namespace dynamiccl
