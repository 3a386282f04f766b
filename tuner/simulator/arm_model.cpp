#include "tuner/simulator/arm_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/vocabulary/backend.hpp"
#include "tuner/simulator/machine_cost.hpp"
#include "tuner/simulator/tiers.hpp"

namespace dynamiccl {
namespace {

constexpr std::array<ProtocolFactor, 3> kProtocols{{{0.35, 0.35}, {0.5, 0.92}, {1, 1}}};

// What NCCL uses when nothing is said: channels by transport, half a buffer step as chunk.
constexpr double kDefaultChannels = 16;
constexpr double kDefaultSocketChannels = 2;
constexpr double kDefaultThreads = 512;
constexpr double kDefaultChunk = 524288;
constexpr double kBufferSteps = 8;
constexpr double kAllChannels = 32;

// Each of the allocator's settings took a third from an all-reduce of 64 MiB in shared memory and
// next to nothing from one of 256 KiB; over networks copies weigh less, so less is promised.
constexpr double kAllocatorFactor = 0.85;
constexpr double kLargeBytes = 1 << 20;

double number_or(const ActionSpace& space, const Action& action, std::string_view knob,
                 double fallback) {
  const auto k = space.knob_index(knob);
  if (!k) return fallback;
  const auto magnitude = space.magnitude(*k, action[*k]);
  return magnitude ? std::exp2(*magnitude) : fallback;
}

int protocol_of(std::string_view name) {
  if (name == "LL") return 0;
  if (name == "LL128") return 1;
  return name == "Simple" ? 2 : -1;
}

int transport_of(std::string_view name, const SpaceContext& context) {
  if (!backend_facts(context.backend).channels || name == "NET") return 2;
  if (name == "P2P") return 0;
  if (name == "SHM") return 1;
  if (context.nodes > 1) return 2;
  return context.peer_to_peer ? 0 : context.shared_memory ? 1 : 2;
}

}  // namespace

PathModel nominal_path(int tier, double place) {
  PathModel path;
  path.link = tier_cost(tier, place);
  const double bandwidth = 1 / path.link.beta_us_per_byte;
  path.peer = {
      .alpha0_us = 2, .beta0_max = bandwidth * 2, .beta1_max = bandwidth * 3, .channel_limit = 32};
  // More channels suit shared memory better than peer access.
  path.shared = {.alpha0_us = 4,
                 .beta0_max = std::min(bandwidth, 2e4) * 2,
                 .beta1_max = std::min(bandwidth, 2e4) * 3,
                 .channel_limit = 48};
  path.network = {.alpha0_us = path.link.alpha_us * 4,
                  .beta0_max = std::min(bandwidth, 3.3e3),
                  .beta1_max = std::min(bandwidth, 3.3e3) * 8,
                  .channel_limit = 32};
  return path;
}

ArmModel::ArmModel(const ActionSpace& space, const SpaceContext& context)
    : collective_(context.collective),
      ranks_(context.ranks),
      nccl_(backend_facts(context.backend).channels),
      peers_(context.nodes == 1 && context.peer_to_peer) {
  const auto subspaces = space.subspaces();
  implementations_ = static_cast<int>(subspaces.size());
  for (int i = 0; i < implementations_; ++i) {
    const auto [first, last] = subspaces[static_cast<std::size_t>(i)];
    for (std::size_t a = first; a < last; ++a) {
      const Action& action = space.arms()[a];
      Arm arm;
      arm.algorithm = space.value(action, "algorithm");
      arm.library_choice = arm.algorithm == "default";
      arm.segment = number_or(space, action, "segment_bytes", 0);
      arm.fanout = number_or(space, action, "fanout", 0);
      arm.depth = number_or(space, action, "pipeline_depth", 0);
      arm.shards = number_or(space, action, "shards", 0);
      arm.protocol = protocol_of(space.value(action, "protocol"));
      arm.transport = transport_of(space.value(action, "transport"), context);
      arm.channels = number_or(space, action, "channels", 0);
      arm.threads = number_or(space, action, "threads", kDefaultThreads);
      arm.chunk =
          number_or(space, action, "chunk_bytes", kDefaultChunk * kBufferSteps) / kBufferSteps;
      arm.socket_threads = number_or(space, action, "socket_threads", 0);
      for (const char* knob : {"malloc.keep", "malloc.huge_pages"})
        if (!nccl_ && number_or(space, action, knob, 0) == 1) ++arm.allocator_settings;
      arm.implementation = i;
      arms_.push_back(arm);
    }
  }
}

ArmCost ArmModel::cpu_cost(const Arm& arm, double bytes, const PathModel& path) const {
  const CollectiveShape shape{collective_, ranks_,    bytes,     arm.segment,
                              arm.fanout,  arm.depth, arm.shards};
  if (path.machine == nullptr) return {collective_work(arm.algorithm, shape).at(path.link), 0};
  const PredictedTime time =
      path.machine->of("", {{arm.algorithm, collective_, ranks_, path.stride, bytes}}, shape);
  return {time.us, time.us > 0 ? time.sum_us / time.us : 0};
}

ArmCost ArmModel::nccl_cost(const Arm& arm, double bytes, const PathModel& path) const {
  const bool network = arm.transport == 2;
  const TransportModel& model = arm.transport == 0   ? path.peer
                                : arm.transport == 1 ? path.shared
                                                     : path.network;
  const ProtocolFactor protocol =
      kProtocols[static_cast<std::size_t>(arm.protocol >= 0 ? arm.protocol
                                          : bytes < 65536   ? 0
                                                            : 2)];
  TransportKnobs knobs;
  knobs.channels = arm.channels > 0 ? arm.channels
                   : network        ? kDefaultSocketChannels
                                    : kDefaultChannels;
  knobs.threads = arm.threads;
  knobs.chunk = std::clamp(bytes / (ranks_ * knobs.channels), 4096.0, arm.chunk);
  double bandwidth = combined_bandwidth(model, knobs) * protocol.bandwidth;
  double alpha = path.link.alpha_us * protocol.alpha;
  if (network) {
    // Without helper threads one thread serves every channel: more of them only add start-ups.
    const double helpers = std::min(arm.socket_threads * knobs.channels, 16.0);
    bandwidth *= 1 + (path.helper_gain - 1) * helpers / 16;
    alpha *= 8 * (1 + 0.08 * knobs.channels);
  } else {
    alpha *= 1 + 0.01 * knobs.channels;
  }
  const double busy = std::min(1.0, knobs.channels / kAllChannels);
  const CollectiveWork work = device_work(arm.algorithm, {collective_, ranks_, bytes});
  if (path.machine == nullptr) return {work.rounds * alpha + work.volume / bandwidth, busy};
  // A server on GPUs is the library's reduce and broadcast.
  std::vector<Phase> phases;
  const bool in = collective_ == Collective::push || collective_ == Collective::push_pull;
  const bool out = collective_ == Collective::pull || collective_ == Collective::push_pull;
  if (in) phases.push_back({arm.algorithm, Collective::reduce, ranks_, path.stride, bytes});
  if (out) phases.push_back({arm.algorithm, Collective::broadcast, ranks_, path.stride, bytes});
  if (phases.empty()) phases.push_back({arm.algorithm, collective_, ranks_, path.stride, bytes});
  const PredictedTime time = path.machine->of("", phases);
  // Bytes go through sockets and over links at the same time, and the slower of both decides.
  const double bytes_us =
      network ? std::max(time.bytes_us, work.volume / bandwidth)
              : time.bytes_us * (peers_ ? path.peer : path.shared).beta0_max / bandwidth;
  return {time.start_up_us * alpha / path.link.alpha_us + bytes_us, busy};
}

std::string_view ArmModel::library_choice(double bytes, const PathModel& path) const {
  double best = std::numeric_limits<double>::infinity();
  std::string_view chosen = "ring";
  for (const Arm& arm : arms_) {
    const bool plain = !arm.library_choice && arm.segment == 0 && arm.fanout == 0 &&
                       arm.channels == 0 && arm.socket_threads == 0;
    const double us = plain ? cost(arm, bytes, path).us : best;
    if (us >= best) continue;
    best = us;
    chosen = arm.algorithm;
  }
  return chosen;
}

std::vector<ArmCost> ArmModel::costs(double bytes, const PathModel& path,
                                     std::string_view library) const {
  std::vector<ArmCost> costs;
  for (const Arm& arm : arms_) {
    Arm like = arm;
    if (arm.library_choice) like.algorithm = library;
    ArmCost one = cost(like, bytes, path);
    if (bytes >= kLargeBytes) one.us *= std::pow(kAllocatorFactor, arm.allocator_settings);
    one.us = std::max(one.us, 1e-3);
    costs.push_back(one);
  }
  return costs;
}

std::vector<double> ArmModel::times_us(double bytes, const PathModel& path) const {
  std::vector<double> times;
  for (const ArmCost& one : costs(bytes, path, library_choice(bytes, path)))
    times.push_back(one.us);
  return times;
}

std::vector<double> ArmModel::log_times(double bytes, const PathModel& path) const {
  std::vector<double> times = times_us(bytes, path);
  for (double& time : times) time = std::log(time);
  return times;
}

}  // namespace dynamiccl
