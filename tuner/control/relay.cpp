#include "tuner/control/relay.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
Relay::Relay(std::shared_ptr<Region> region, WireSocket leader)
    : region_(std::move(region)), leader_(std::move(leader)) {
  RegionHeader& header = region_->header();
  if (header.across_hosts == 0 || !region_->lock_leadership())
    throw Error(ErrorKind::environment,
                "this communicator is led on its own host, or has a relay already: ranks need "
                "DYNAMICCL_TUNER_HOSTS, and one relay per host");
  // What an earlier relay left undecided stays so: its leader may have told other hosts.
  if (unpack(header.word.load()).state != ProposalState::prepared) header.relay_lost.store(0);
  header.relay_beat_ns.store(monotonic_ns());
  WireMessage hello;
  hello.communicator = header.communicator;
  hello.epoch = unpack(header.word.load()).epoch;
  hello.ranks = header.ranks;
  leader_.send(hello);
}

void Relay::prepare(const WireMessage& message) {
  RegionHeader& header = region_->header();
  const Proposal now = unpack(header.word.load(std::memory_order_acquire));
  if (now.state == ProposalState::prepared || message.epoch <= now.epoch) return;
  region_->publish(message.table, message.epoch);
  header.word.store(pack({message.epoch, ProposalState::prepared, false, message.boundary}),
                    std::memory_order_release);
}

void Relay::verdict(const WireMessage& message) {
  RegionHeader& header = region_->header();
  const Proposal now = unpack(header.word.load(std::memory_order_acquire));
  if (now.epoch != message.epoch || now.state != ProposalState::prepared) return;
  const bool commit = message.committed != 0;
  header.word.store(pack(decided(now, commit ? ProposalState::committed : ProposalState::aborted)),
                    std::memory_order_release);
  (commit ? header.committed : header.aborted).fetch_add(1);
}

WireMessage Relay::status() const {
  const RegionHeader& header = region_->header();
  const Proposal now = unpack(header.word.load(std::memory_order_acquire));
  WireMessage message;
  message.kind = WireMessage::Kind::status;
  message.communicator = header.communicator;
  message.epoch = now.epoch;
  message.ranks = std::min(header.claimed.load(), header.ranks);
  message.behind = message.ranks == 0 ? 0 : kMostBoundary;
  for (std::size_t i = 0; i < message.ranks; ++i) {
    const RankSlot& slot = region_->slot(i);
    const std::int64_t calls = slot.calls.load(std::memory_order_relaxed);
    message.boundary = std::max(message.boundary, calls);
    message.behind = std::min(message.behind, calls);
    if (now.epoch == 0) continue;
    message.acked += slot.acked.load(std::memory_order_acquire) == now.epoch ? 1 : 0;
    message.settled += slot.settled.load(std::memory_order_acquire) == now.epoch ? 1 : 0;
    message.refused += slot.refused.load(std::memory_order_acquire) == now.epoch ? 1 : 0;
  }
  return message;
}

bool Relay::step() {
  while (const auto message = leader_.receive()) {
    if (message->kind == WireMessage::Kind::prepare) prepare(*message);
    if (message->kind == WireMessage::Kind::verdict) verdict(*message);
  }
  RegionHeader& header = region_->header();
  if (!leader_.alive()) {
    header.relay_lost.store(1, std::memory_order_release);
    return false;
  }
  header.relay_beat_ns.store(monotonic_ns(), std::memory_order_relaxed);
  const WireMessage now = status();
  if (std::memcmp(&now, &told_, sizeof(now)) != 0) leader_.send(now);
  told_ = now;
  return true;
}

HostsLeader::HostsLeader(int listener, std::uint64_t communicator, std::int64_t patience_ns)
    : listener_(listener), communicator_(communicator), patience_ns_(patience_ns) {}

HostsLeader::~HostsLeader() { close(listener_); }

std::uint32_t HostsLeader::sum(std::uint32_t WireMessage::*field) const {
  std::uint32_t total = 0;
  for (const Host& host : hosts_)
    if (host.last.epoch == epoch_) total += host.last.*field;
  return total;
}

std::int64_t HostsLeader::spread() const {
  std::int64_t most = 0;
  std::int64_t least = kMostBoundary;
  for (const Host& host : hosts_) {
    most = std::max(most, host.last.boundary);
    least = std::min(least, host.last.behind);
  }
  return std::max<std::int64_t>(most - least, 0);
}

void HostsLeader::take_in() {
  while (auto socket = wire_accept(listener_)) hosts_.push_back({std::move(*socket), {}});
  for (Host& host : hosts_) {
    while (const auto message = host.socket.receive()) {
      if (message->communicator != communicator_) continue;
      if (message->kind == WireMessage::Kind::hello) ranks_ = message->ranks;
      if (!joined_) epoch_ = std::max(epoch_, message->epoch);
      if (message->kind == WireMessage::Kind::status) host.last = *message;
    }
    if (joined_ && !host.socket.alive())
      throw Error(ErrorKind::environment,
                  "a host's relay is lost: its ranks keep their table; no change is possible any "
                  "more");
  }
  std::erase_if(hosts_, [](const Host& host) { return !host.socket.alive(); });
}

HostsLeader::Progress HostsLeader::poll() {
  take_in();
  if (!joined_) {
    std::uint32_t present = 0;
    for (const Host& host : hosts_) present += host.last.ranks;
    joined_ = ranks_ > 0 && present == ranks_;
    return joined_ ? Progress::free : Progress::joining;
  }
  if (open_) {
    if (sum(&WireMessage::acked) == ranks_)
      decide(true);
    else if (sum(&WireMessage::refused) > 0 || monotonic_ns() - proposed_at_ns_ > patience_ns_)
      decide(false);
    else
      return Progress::open;
  }
  if (epoch_ == 0 || !committed_) return Progress::free;
  return sum(&WireMessage::settled) == ranks_ ? Progress::free : Progress::settling;
}

void HostsLeader::decide(bool commit) {
  WireMessage message;
  message.kind = WireMessage::Kind::verdict;
  message.communicator = communicator_;
  message.epoch = epoch_;
  message.committed = commit ? 1 : 0;
  for (Host& host : hosts_) host.socket.send(message);
  open_ = false;
  committed_ = commit;
}

void HostsLeader::propose(const CallTable& table, std::int64_t ahead) {
  DYN_ASSERT(joined_ && !open_, "a proposal is open or a host is missing: poll() first");
  WireMessage message;
  message.kind = WireMessage::Kind::prepare;
  message.communicator = communicator_;
  message.epoch = ++epoch_;
  message.table = table;
  for (const Host& host : hosts_) message.boundary = std::max(message.boundary, host.last.boundary);
  message.boundary += std::max<std::int64_t>(ahead, 1);
  for (Host& host : hosts_) host.socket.send(message);
  open_ = true;
  committed_ = false;
  proposed_at_ns_ = monotonic_ns();
}

}  // namespace dynamiccl
