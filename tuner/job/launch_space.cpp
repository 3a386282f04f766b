#include "tuner/job/launch_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/vocabulary/setting.hpp"
#include "tuner/state/task_key.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kThreads = "NCCL_SOCKET_NTHREADS";
constexpr const char* kSockets = "NCCL_NSOCKS_PERTHREAD";
constexpr const char* kChannels = "NCCL_MIN_CTAS";
constexpr const char* kBuffer = "NCCL_BUFFSIZE";
constexpr const char* kHostId = "NCCL_HOSTID";
constexpr const char* kQueuePairs = "NCCL_IB_QPS_PER_CONNECTION";
constexpr const char* kCards = "NCCL_NETDEVS_POLICY";
/// The first release that knows kCards.
constexpr int kCardsSince = 22800;

/// NCCL refuses more sockets than this per connection (MAX_SOCKETS in net_socket.cc).
constexpr double kMostSockets = 64;
/// What one channel holds for one peer: Simple's buffer of 4 MiB, LL128's and LL's, both ways.
constexpr double kChannelMib = 2 * (4 + 4.8 + 1);
constexpr double kDefaultSocketChannels = 2;
constexpr double kDefaultOtherChannels = 16;

double value_or(const ActionSpace& space, const Action& action, const char* knob, double other) {
  const auto k = space.knob_index(knob);
  if (!k) return other;
  const auto magnitude = space.magnitude(*k, action[*k]);
  return magnitude ? std::exp2(*magnitude) : other;
}

double default_channels(const JobFacts& facts) {
  return facts.network ? kDefaultSocketChannels : kDefaultOtherChannels;
}

/// Threads that move bytes of one rank besides NCCL's own proxy thread; 0: none.
double helpers(const ActionSpace& space, const Action& action, const JobFacts& facts) {
  const double threads = value_or(space, action, "socket_threads", 0);
  return threads * value_or(space, action, "channels", default_channels(facts));
}

bool as_one_host(const ActionSpace& space, const Action& action) {
  const auto k = space.knob_index("one_host");
  return k && action[*k] != 0;
}

/// What sets one host apart from all else sets nothing else.
bool sets_more(const ActionSpace& space, const Action& action) {
  for (std::size_t k = 0; k < space.knobs().size(); ++k)
    if (space.knobs()[k].name != "one_host" && action[k] != 0) return true;
  return false;
}

/// How many times faster than NCCL's default over sockets a large message goes within one host: 64
/// MiB between 2 GPUs took 33.9 ms over sockets, 2.6 by NCCL's shared memory, 0.26 over NVLink
/// (reports/measured/h100x2-2026-11-containers).
double one_host_speed(const JobFacts& facts) {
  return facts.one_host == OneHostWay::library && facts.all_gpus ? 100 : 10;
}

/// How many times faster the network moves a large message than by NCCL's default over sockets.
/// 64 MiB between 4 GPUs took 20.2 ms by default, 11.4 with 2 helper threads in all, 7.1 with 4,
/// 5.3 with 16.
double socket_speed(double helper_threads, double sockets, double channels, int cores) {
  if (helper_threads <= 0) return 1 / (1 + 0.05 * std::log2(std::max(1.0, channels / 2)));
  constexpr double kMostGain = 3.5;
  constexpr double kHalfWay = 4.5;
  const double lanes = helper_threads * (1 + 0.15 * std::log2(std::max(1.0, sockets)));
  double speed = 1 + kMostGain * (1 - std::exp(-lanes / kHalfWay));
  // Threads that share cores hold each other up.
  const double crowd = lanes / std::max(1, cores);
  if (crowd > 1) speed /= std::sqrt(crowd);
  return speed;
}

std::vector<Knob> launch_knobs(const JobFacts& facts, const JobConstraints& constraints,
                               const std::set<std::string>& taken,
                               std::vector<std::string>& left_out) {
  std::vector<Knob> knobs;
  const auto add = [&](const char* name, const char* variable, std::vector<std::string> values) {
    if (taken.contains(variable)) {
      left_out.push_back(fmt::format("{} is set by you and stays as it is", variable));
      return;
    }
    values.insert(values.begin(), "default");
    knobs.push_back({.name = name,
                     .role = KnobRole::resource,
                     .scope = KnobScope::launch,
                     .target = setting_text(SettingScope::env, variable),
                     .values = std::move(values)});
  };
  const bool may_reorder = !keeps_order(facts, constraints);
  const bool sockets = facts.network && !facts.rdma;
  // NCCL plans anew for ranks that become one host.
  if (may_reorder && facts.one_host != OneHostWay::none) add("one_host", kHostId, {kOneHostName});
  if (sockets) add("socket_threads", kThreads, {"1", "2", "4"});
  if (sockets) add("sockets", kSockets, {"2", "4"});
  if (facts.network && facts.rdma) add("queue_pairs", kQueuePairs, {"2", "4"});
  // Over how many cards a GPU's messages go; ranks keep the order that the job gave them, channels
  // do not.
  if (may_reorder && facts.network && facts.rdma && facts.nics > 1 &&
      facts.nccl_version >= kCardsSince) {
    std::vector<std::string> most;
    for (int cards = 1; cards <= facts.nics; cards *= 2)
      most.push_back(fmt::format("MAX:{}", cards));
    add("nic_stripe", kCards, std::move(most));
  }
  if (may_reorder) {
    add("channels", kChannels,
        facts.network ? std::vector<std::string>{"2", "4", "8", "16"}
                      : std::vector<std::string>{"8", "16", "24", "32"});
    if (!facts.network) add("buffer_bytes", kBuffer, {"1048576", "8388608", "16777216"});
  } else {
    left_out.emplace_back(
        "sums must stay the same bit by bit: channels, buffers, cards, the ranks' hosts and calls' "
        "settings are not changed");
  }
  return knobs;
}

}  // namespace

bool keeps_order(const JobFacts& facts, const JobConstraints& constraints) {
  // With two ranks a sum has one order; with more, algorithms, channels and chunks decide whose
  // value is first.
  return constraints.same_bits && facts.ranks > 2;
}

ActionSpace launch_space(const JobFacts& facts, const JobConstraints& constraints,
                         const std::set<std::string>& taken, std::vector<std::string>& left_out) {
  std::size_t too_large = 0;
  std::size_t too_busy = 0;
  const auto allowed = [&](const ActionSpace& space, const Action& action) {
    const double threads = value_or(space, action, "socket_threads", 0);
    const double per_thread = value_or(space, action, "sockets", 1);
    // Sockets are shared out to helper threads: without any, NCCL opens one.
    if (threads == 0 && per_thread > 1) return false;
    if (threads * per_thread > kMostSockets) return false;
    const double channels = value_or(space, action, "channels", default_channels(facts));
    const double more = std::max(0.0, channels - default_channels(facts)) * kChannelMib *
                        value_or(space, action, "buffer_bytes", 4 << 20) / (4 << 20);
    if (constraints.gpu_memory_mib && more > *constraints.gpu_memory_mib) {
      ++too_large;
      return false;
    }
    if (as_one_host(space, action) && sets_more(space, action)) return false;
    const double busy = helpers(space, action, facts) * facts.ranks_per_host;
    if (constraints.host_cores && busy > *constraints.host_cores) {
      ++too_busy;
      return false;
    }
    return true;
  };
  ActionSpace space("nccl launch", launch_knobs(facts, constraints, taken, left_out), allowed);
  if (too_large > 0)
    left_out.push_back(fmt::format("{} settings would take more than {:g} MiB more of a GPU",
                                   too_large, constraints.gpu_memory_mib.value_or(0)));
  if (too_busy > 0)
    left_out.push_back(fmt::format("{} settings would have more helper threads than {} cores",
                                   too_busy, constraints.host_cores.value_or(0)));
  return space;
}

std::vector<double> launch_prior(const ActionSpace& space, const JobFacts& facts,
                                 Micros default_step, double communication) {
  std::vector<double> prior;
  const double share = std::clamp(communication, 0.0, 0.98);
  const int cores = std::max(1, facts.cores / std::max(1, facts.ranks_per_host));
  for (const Action& action : space.arms()) {
    double speed = 1;
    if (as_one_host(space, action))
      speed = one_host_speed(facts);
    else if (facts.network && !facts.rdma)
      speed = socket_speed(helpers(space, action, facts), value_or(space, action, "sockets", 1),
                           value_or(space, action, "channels", default_channels(facts)), cores);
    prior.push_back(std::log(default_step.count() * (1 - share + share / speed)));
  }
  return prior;
}

std::optional<double> communication_share(const std::vector<MixEntry>& mix, Micros step) {
  double busy = 0;
  bool timed = false;
  for (const MixEntry& entry : mix) {
    if (entry.timed == 0 || entry.per_step <= 0) continue;
    timed = true;
    busy += entry.per_step * entry.device_us / static_cast<double>(entry.timed);
  }
  if (!timed || !(step.count() > 0)) return std::nullopt;
  return std::min(1.0, busy / step.count());
}

std::optional<MainTraffic> main_traffic(const std::vector<MixEntry>& mix) {
  std::map<std::pair<std::size_t, int>, std::pair<double, std::uint64_t>> bytes;
  for (const MixEntry& entry : mix) {
    if (!has_collective(entry.function)) continue;
    auto& [sum, largest] = bytes[{entry.function, SizeBin::of(Bytes(entry.bytes)).log2}];
    const double times = entry.per_step > 0 ? entry.per_step : 1e-3;
    sum += times * static_cast<double>(entry.bytes);
    largest = std::max(largest, entry.bytes);
  }
  const auto most = std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) {
    return a.second.first < b.second.first;
  });
  if (most == bytes.end()) return std::nullopt;
  return MainTraffic{collective_of(most->first.first), Bytes(most->second.second)};
}

bool has_collective(std::size_t function) {
  return function < kCallFunctions || function == told_alltoall || function == told_gather;
}

Collective collective_of(std::size_t function) {
  if (function == told_alltoall) return Collective::alltoall;
  if (function == told_gather) return Collective::gather;
  constexpr std::array kCollectives{Collective::broadcast, Collective::reduce,
                                    Collective::allgather, Collective::reduce_scatter,
                                    Collective::allreduce};
  return kCollectives.at(function);
}

}  // namespace dynamiccl
