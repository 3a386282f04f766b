#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "core/wire/record.hpp"
#include "train/spec/training.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// Of so many multiprocessors over so long, what kernels of these channels took: each block holds
/// one.
double sm_share(const std::vector<ChannelTimes>& channels, int multiprocessors, double over_us);

/// Of this rank's GPU since channels were taken last; nullopt where nobody tells.
std::optional<double> sm_share_of(Communicator& comm, double over_us);

/// Makes a step. As a GPU's lanes, channels tell of the last one alone, which is traced, but where
/// a tuner uses them: the record's training gets what they did. Nothing is known of servers that
/// add on their GPU.
/// @returns what the step says it took, microseconds
double watched_step(Communicator& comm, bool is_last, const TrainingSpec& spec,
                    const std::function<double(bool is_last)>& step, CellRecord& record);

/// {"sm_share", "channels": [{"channel", "kernel_us", "proxy_us", "network_us"}]}: who was busy.
nlohmann::json channels_json(const std::vector<ChannelTimes>& channels, int multiprocessors,
                             double over_us);

}  // namespace dynamiccl
