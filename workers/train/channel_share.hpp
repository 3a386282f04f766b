#pragma once

#include <optional>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// Of so many multiprocessors over so long, what kernels of these channels took: each block holds
/// one.
double sm_share(const std::vector<ChannelTimes>& channels, int multiprocessors, double over_us);

/// Of this rank's GPU since channels were taken last; nullopt where nobody tells.
std::optional<double> sm_share_of(Communicator& comm, double over_us);

/// {"sm_share", "channels": [{"channel", "kernel_us", "proxy_us", "network_us"}]}: who was busy.
nlohmann::json channels_json(const std::vector<ChannelTimes>& channels, int multiprocessors,
                             double over_us);

}  // namespace dynamiccl
