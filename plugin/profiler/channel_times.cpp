#include "plugin/profiler/channel_times.hpp"

#include <algorithm>

#include "plugin/profiler/nccl_profiler_abi.hpp"

namespace dynamiccl::nccl_profiler {
namespace {

constexpr std::size_t kOps = 4096;
constexpr std::size_t kSteps = kOps * 8;

}  // namespace

ChannelTimes::ChannelTimes() : ops_(kOps), steps_(kSteps) {}

ChannelTimes& ChannelTimes::instance() {
  // NCCL's threads may outlive static destructors.
  static auto* const kept = new ChannelTimes;
  return *kept;
}

void ChannelTimes::Busy::begin(std::uint64_t now_ns) {
  if (count++ == 0) since_ns = now_ns;
}

void ChannelTimes::Busy::end(std::uint64_t now_ns) {
  if (--count == 0) total_ns += now_ns - std::min(since_ns, now_ns);
}

std::uint64_t ChannelTimes::Busy::take(std::uint64_t now_ns) {
  std::uint64_t all = total_ns;
  total_ns = 0;
  if (count > 0) {
    all += now_ns - std::min(since_ns, now_ns);
    since_ns = now_ns;
  }
  return all;
}

void ChannelTimes::add_kernel(unsigned channel, std::uint64_t ns) {
  const std::lock_guard lock(mutex_);
  channels_[channel % kMostChannels].kernel_ns += ns;
}

ProxyOp* ChannelTimes::start_op(unsigned channel, std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  ProxyOp& op = ops_[next_op_++ % kOps];
  // Its end was lost, or it is thousands of operations late.
  close(op, now_ns);
  op = ProxyOp{{Event::Kind::proxy_op, nullptr},
               channel % static_cast<unsigned>(kMostChannels),
               op.generation + 1,
               true,
               0};
  channels_[op.channel].proxy.begin(now_ns);
  return &op;
}

ProxyStep* ChannelTimes::start_step(const ProxyOp* op, std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (!op->open) return nullptr;
  ProxyStep& step = steps_[next_step_++ % kSteps];
  close(step, now_ns);
  step = ProxyStep{{Event::Kind::proxy_step, nullptr},
                   static_cast<std::size_t>(op - ops_.data()),
                   op->generation,
                   true,
                   false};
  return &step;
}

ProxyOp* ChannelTimes::alive(const ProxyStep& step) {
  ProxyOp& op = ops_[step.op];
  return step.open && op.open && op.generation == step.generation ? &op : nullptr;
}

void ChannelTimes::put(ProxyStep& step, bool on_network, std::uint64_t now_ns) {
  ProxyOp* op = alive(step);
  if (op == nullptr || on_network == step.on_network) return;
  step.on_network = on_network;
  Busy& network = channels_[op->channel].network;
  op->on_network += on_network ? 1 : -1;
  if (on_network)
    network.begin(now_ns);
  else
    network.end(now_ns);
}

void ChannelTimes::enter(ProxyStep* step, int state, std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  put(*step, state == kProxyStepSendWait || state == kProxyStepRecvWait, now_ns);
}

void ChannelTimes::close(ProxyStep& step, std::uint64_t now_ns) {
  put(step, false, now_ns);
  step.open = false;
}

/// Steps that have not ended go with it.
void ChannelTimes::close(ProxyOp& op, std::uint64_t now_ns) {
  if (!op.open) return;
  for (; op.on_network > 0; --op.on_network) channels_[op.channel].network.end(now_ns);
  op.open = false;
  channels_[op.channel].proxy.end(now_ns);
}

void ChannelTimes::stop(Event* event, std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (event->kind == Event::Kind::proxy_op) {
    close(*static_cast<ProxyOp*>(event), now_ns);
  } else {
    close(*static_cast<ProxyStep*>(event), now_ns);
  }
}

std::array<ChannelBusy, kMostChannels> ChannelTimes::take(std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  std::array<ChannelBusy, kMostChannels> all{};
  for (std::size_t c = 0; c < kMostChannels; ++c) {
    Channel& channel = channels_[c];
    all[c] = {channel.kernel_ns, channel.proxy.take(now_ns), channel.network.take(now_ns)};
    channel.kernel_ns = 0;
  }
  return all;
}

}  // namespace dynamiccl::nccl_profiler
