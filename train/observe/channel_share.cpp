#include "train/observe/channel_share.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "workers/device/device.hpp"

namespace dynamiccl {

double sm_share(const std::vector<ChannelTimes>& channels, int multiprocessors, double over_us) {
  double busy_us = 0;
  for (const ChannelTimes& channel : channels) busy_us += channel.kernel_us;
  const double all_us = multiprocessors * over_us;
  return all_us > 0 ? std::min(1.0, busy_us / all_us) : 0;
}

std::optional<double> sm_share_of(Communicator& comm, double over_us) {
  const std::vector<ChannelTimes> channels = comm.take_channels();
  if (channels.empty() || comm.device() == nullptr) return std::nullopt;
  return sm_share(channels, comm.device()->multiprocessors(), over_us);
}

nlohmann::json channels_json(const std::vector<ChannelTimes>& channels, int multiprocessors,
                             double over_us) {
  nlohmann::json rows = nlohmann::json::array();
  for (std::size_t c = 0; c < channels.size(); ++c) {
    const ChannelTimes& channel = channels[c];
    if (channel.kernel_us + channel.proxy_us > 0)
      rows.push_back({{"channel", c},
                      {"kernel_us", channel.kernel_us},
                      {"proxy_us", channel.proxy_us},
                      {"network_us", channel.network_us}});
  }
  return {{"sm_share", sm_share(channels, multiprocessors, over_us)},
          {"step_us", over_us},
          {"channels", std::move(rows)}};
}

double watched_step(Communicator& comm, bool is_last, const TrainingSpec& spec,
                    const std::function<double(bool is_last)>& step, CellRecord& record) {
  // NCCL 2.28 counts kernels otherwise than its profiler where a GPU sends and receives pieces of
  // unlike sizes at once, and a look at them keeps its communicator from ending.
  const bool may_look = spec.server_sums != ServerSums::gpu;
  if (!is_last || !may_look || comm.device() == nullptr) return step(is_last);
  comm.take_channels();
  comm.watch_channels(ChannelDetail::all);
  const double total_us = step(is_last);
  // NCCL's own thread looks for kernels that have ended every now and then.
  constexpr std::chrono::milliseconds kTold{20};
  std::this_thread::sleep_for(kTold);
  const std::vector<ChannelTimes> channels = comm.take_channels();
  comm.watch_channels(is_tuned(spec) ? ChannelDetail::kernels : ChannelDetail::none);
  if (!channels.empty())
    record.training->details["channels"] =
        channels_json(channels, comm.device()->multiprocessors(), total_us);
  return total_us;
}

}  // namespace dynamiccl
