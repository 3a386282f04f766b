#include "tuner/control/relay.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

/// Relays that are connected and led by nobody: a host's for each of its communicators.
constexpr std::size_t kMostWaitingRelays = 4096;
constexpr std::int64_t kHelloPatienceNs = 10'000'000'000;
constexpr std::int64_t kRetireNs = 1'000'000'000;
constexpr std::size_t kMostTold = 4096;
constexpr std::size_t kMostToldBytes = std::size_t{64} << 20;
/// Verdicts do not wait behind more than that.
constexpr std::size_t kMostUnsentFacts = std::size_t{1} << 20;

}  // namespace

Relay::Relay(std::shared_ptr<Region> region, WireSocket leader)
    : region_(std::move(region)), leader_(std::move(leader)) {
  RegionHeader& header = region_->header();
  if (header.across_hosts == 0 || !region_->lock_leadership())
    throw Error(ErrorKind::environment,
                "this communicator is led on its own host, or has a relay already: ranks need "
                "DYNAMICCL_TUNER_HOSTS, and one relay per host");
  // What an earlier relay left undecided stays so: its leader may have told other hosts. A relay
  // that was killed has not said that it is lost.
  const bool undecided = unpack(header.word.load()).state == ProposalState::prepared;
  header.relay_lost.store(undecided ? 1 : 0, std::memory_order_release);
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
  // The word has no room for more.
  if (message.epoch > kMostEpoch || message.boundary < 0 || message.boundary > kMostBoundary)
    return;
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
    const bool acked = slot.acked.load(std::memory_order_acquire) == now.epoch;
    message.acked += acked ? 1 : 0;
    message.settled += slot.settled.load(std::memory_order_acquire) == now.epoch ? 1 : 0;
    // One that is past the boundary will refuse with its next call, which may wait for ranks that
    // wait there for the verdict.
    const bool late = now.state == ProposalState::prepared && !acked && calls > now.boundary;
    const bool refused = slot.refused.load(std::memory_order_acquire) == now.epoch;
    message.refused += late || refused ? 1 : 0;
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
  if (std::memcmp(static_cast<const WireHeader*>(&now), &told_, sizeof(told_)) != 0)
    leader_.send(now);
  told_ = now;
  if (!said_left_ && all_ranks_gone(*region_)) {
    WireMessage left = now;
    left.kind = WireMessage::Kind::left;
    leader_.send(left);
    said_left_ = true;
  }
  return true;
}

bool Relay::tell(std::uint32_t rank, const std::string& facts) {
  if (leader_.unsent() > kMostUnsentFacts) return false;
  WireMessage message;
  message.kind = WireMessage::Kind::facts;
  message.communicator = region_->header().communicator;
  message.ranks = rank;
  message.text = facts;
  leader_.send(message);
  return true;
}

void RelayDesk::Arrival::keep(const WireMessage& message) {
  std::erase_if(said, [&](const WireMessage& earlier) { return earlier.kind == message.kind; });
  said.push_back(message);
}

RelayDesk::~RelayDesk() { close(listener_); }

void RelayDesk::take_in() {
  while (auto socket = wire_accept(listener_))
    if (waiting() < kMostWaitingRelays) unknown_.push_back({std::move(*socket), monotonic_ns()});
  for (auto& [socket, came_ns] : unknown_) {
    auto hello = socket.receive();
    if (hello && hello->kind == WireMessage::Kind::hello)
      known_[hello->communicator].push_back({std::move(socket), {*hello}});
  }
  // Moved ones are no longer alive either.
  std::erase_if(unknown_, [](const Unknown& one) {
    return !one.socket.alive() || monotonic_ns() - one.came_ns > kHelloPatienceNs;
  });
  // Relays of communicators that nobody leads come back every time they are lost. An end that has
  // closed is seen behind what it had said, and by nobody who does not read that.
  for (auto& [communicator, arrivals] : known_) {
    for (Arrival& arrival : arrivals)
      while (const auto message = arrival.socket.receive()) {
        if (message->kind == WireMessage::Kind::left && left_.size() < kMostWaitingRelays)
          left_.insert(communicator);
        if (message->kind == WireMessage::Kind::facts)
          keep_facts(*message);
        else
          arrival.keep(*message);
      }
    std::erase_if(arrivals, [](const Arrival& arrival) { return !arrival.socket.alive(); });
  }
  std::erase_if(known_, [](const auto& entry) { return entry.second.empty(); });
}

std::size_t RelayDesk::waiting() const {
  std::size_t count = unknown_.size();
  for (const auto& [communicator, arrivals] : known_) count += arrivals.size();
  return count;
}

std::uint32_t RelayDesk::ranks_waiting(std::uint64_t communicator) {
  take_in();
  std::uint32_t ranks = 0;
  const auto found = known_.find(communicator);
  if (found == known_.end()) return 0;
  for (const Arrival& arrival : found->second)
    for (const WireMessage& message : arrival.said)
      if (message.kind == WireMessage::Kind::status) ranks += message.ranks;
  return ranks;
}

const RelayDesk::Told& RelayDesk::told() {
  take_in();
  return told_;
}

void RelayDesk::keep_facts(const WireMessage& message) {
  const auto key = std::pair(message.communicator, message.ranks);
  const auto known = told_.find(key);
  const std::size_t before = known == told_.end() ? 0 : known->second.size();
  if (told_bytes_ - before + message.text.size() > kMostToldBytes ||
      (known == told_.end() && told_.size() >= kMostTold))
    return;
  told_bytes_ += message.text.size() - before;
  told_[key] = message.text;
}

std::list<RelayDesk::Arrival> RelayDesk::arrivals(std::uint64_t communicator) {
  take_in();
  const auto found = known_.find(communicator);
  if (found == known_.end()) return {};
  auto arrivals = std::move(found->second);
  known_.erase(found);
  return arrivals;
}

HostsLeader::HostsLeader(std::shared_ptr<RelayDesk> desk, std::uint64_t communicator,
                         std::int64_t patience_ns)
    : desk_(std::move(desk)), communicator_(communicator), patience_ns_(patience_ns) {}

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
  for (auto& arrival : desk_->arrivals(communicator_)) {
    hosts_.push_back({std::move(arrival.socket), {}});
    for (const WireMessage& message : arrival.said) hear(hosts_.back(), message);
  }
  for (Host& host : hosts_) {
    while (const auto message = host.socket.receive()) hear(host, *message);
    if (joined_ && !host.socket.alive() && !host.left)
      throw Error(ErrorKind::environment,
                  "a host's relay is lost: its ranks keep their table; no change is possible any "
                  "more");
  }
  std::erase_if(hosts_, [](const Host& host) { return !host.socket.alive() && !host.left; });
}

void HostsLeader::hear(Host& host, const WireMessage& message) {
  if (message.communicator != communicator_ || message.epoch > kMostEpoch) return;
  // From elsewhere: they are added and subtracted.
  const auto is_call = [](std::int64_t call) { return call >= 0 && call <= kMostBoundary; };
  if (!is_call(message.boundary) || !is_call(message.behind)) return;
  if (message.kind == WireMessage::Kind::facts) desk_->keep_facts(message);
  if (message.kind == WireMessage::Kind::hello) ranks_ = message.ranks;
  if (message.kind == WireMessage::Kind::left) host.left = true;
  if (!joined_) epoch_ = std::max(epoch_, message.epoch);
  if (message.kind == WireMessage::Kind::status) host.last = message;
}

HostsLeader::Progress HostsLeader::poll() {
  take_in();
  if (!joined_) {
    // Whose ranks have left will never join.
    if (desk_->has_left(communicator_)) return Progress::ended;
    std::uint32_t present = 0;
    for (const Host& host : hosts_) present += host.last.ranks;
    joined_ = ranks_ > 0 && present == ranks_;
    return joined_ ? Progress::free : Progress::joining;
  }
  const bool left =
      std::any_of(hosts_.begin(), hosts_.end(), [](const Host& host) { return host.left; });
  if (open_) {
    if (left)
      decide(false);
    else if (sum(&WireMessage::acked) == ranks_)
      decide(true);
    else if (sum(&WireMessage::refused) > 0 || monotonic_ns() - proposed_at_ns_ > patience_ns_)
      decide(false);
    else
      return Progress::open;
  }
  if (left || (epoch_ >= kMostEpoch && !committed_)) return Progress::ended;
  if (epoch_ == 0 || !committed_) return Progress::free;
  if (sum(&WireMessage::settled) != ranks_) return Progress::settling;
  return epoch_ >= kMostEpoch ? Progress::ended : Progress::free;
}

void HostsLeader::retire(const std::function<void()>& meanwhile) {
  if (!open_) return;
  decide(false);
  const std::int64_t end = monotonic_ns() + kRetireNs;
  // A connection that is closed with something unread would take the verdict with it.
  for (bool waiting = !hosts_.empty(); waiting && monotonic_ns() < end;) {
    meanwhile();
    waiting = false;
    for (Host& host : hosts_) {
      if (!host.socket.shut_down()) waiting = true;
      while (host.socket.receive()) {
      }
      waiting = waiting || host.socket.alive();
    }
    if (waiting) usleep(500);
  }
  hosts_.clear();
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
  message.boundary = std::min(message.boundary + std::max<std::int64_t>(ahead, 1), kMostBoundary);
  for (Host& host : hosts_) host.socket.send(message);
  open_ = true;
  committed_ = false;
  proposed_at_ns_ = monotonic_ns();
}

AcrossHostsLeader::AcrossHostsLeader(std::shared_ptr<Region> region,
                                     const std::shared_ptr<RelayDesk>& desk,
                                     std::int64_t patience_ns)
    : TableLeader(region),
      hosts_(desk, region->header().communicator, patience_ns),
      own_(region, wire_connect("localhost", desk->port())) {}

AcrossHostsLeader::~AcrossHostsLeader() {
  hosts_.retire([this] { own_.step(); });
}

TableLeader::Progress AcrossHostsLeader::poll() {
  // Before anything else: what the relay here has not said yet, others would wait for.
  const bool relayed = own_.step();
  if (all_ranks_gone(*region_)) return Progress::ended;
  if (!relayed) throw Error(ErrorKind::environment, "the relay of the leader's own host is lost");
  switch (hosts_.poll()) {
    case HostsLeader::Progress::free:
      break;
    case HostsLeader::Progress::open:
      return Progress::open;
    case HostsLeader::Progress::ended:
      return Progress::ended;
    case HostsLeader::Progress::joining:
    case HostsLeader::Progress::settling:
      return Progress::settling;
  }
  // The verdict may still be on its way to the ranks here.
  return proposal().state == ProposalState::prepared ? Progress::settling : Progress::free;
}

void AcrossHostsLeader::propose(const CallTable& table, std::int64_t ahead) {
  hosts_.propose(table, ahead);
}

namespace {

constexpr std::int64_t kLookNs = 100'000'000;
/// Between two tries to reach a leader: each may take two seconds.
constexpr std::int64_t kAgainNs = 500'000'000;
/// Between two looks for what ranks have told, doubled each time: ranks that never tell cost
/// little.
constexpr std::int64_t kFactsFirstNs = 20'000'000;
constexpr std::int64_t kFactsLastNs = 10'000'000'000;

}  // namespace

FolderRelays::FolderRelays(std::string folder, std::string leader_host, int leader_port,
                           Facts facts)
    : folder_(std::move(folder)),
      host_(std::move(leader_host)),
      port_(leader_port),
      facts_(std::move(facts)) {}

void FolderRelays::tell_facts(Relayed& one) {
  const RegionHeader& header = one.region->header();
  const std::size_t here = std::min<std::size_t>(header.claimed.load(), one.region->ranks());
  if (!facts_ || one.told.size() >= here || monotonic_ns() < one.facts_at_ns) return;
  one.facts_after_ns = std::clamp(2 * one.facts_after_ns, kFactsFirstNs, kFactsLastNs);
  one.facts_at_ns = monotonic_ns() + one.facts_after_ns;
  for (const auto& [rank, text] : facts_(header.communicator)) {
    if (one.told.contains(rank)) continue;
    if (!one.relay->tell(rank, text)) return;
    one.told.insert(rank);
  }
}

void FolderRelays::meet_regions() {
  if (monotonic_ns() < look_again_at_ns_) return;
  look_again_at_ns_ = monotonic_ns() + kLookNs;
  for (const std::string& path : regions_in(folder_)) {
    if (relayed_.contains(path)) continue;
    Relayed one;
    std::string problem;
    one.region = Region::open(path, problem);
    if (one.region == nullptr) {
      problems_[path] = problem;
      one.ignored = true;
    } else if (one.region->header().across_hosts == 0) {
      problems_[path] = path +
                        ": its ranks agree on this host alone: give them "
                        "DYNAMICCL_TUNER_HOSTS, the number of hosts";
      one.ignored = true;
    }
    relayed_.emplace(path, std::move(one));
  }
}

void FolderRelays::keep(const std::string& path, Relayed& one) {
  if (one.ignored || one.gone) return;
  one.gone = all_ranks_gone(*one.region);
  // The last step of ranks that are gone says so.
  if (one.relay != nullptr && (!one.relay->step() || one.gone)) {
    // The leader is lost; the region's lock goes with its file.
    one.relay.reset();
    one.region.reset();
    std::string problem;
    one.region = Region::open(path, problem);
    one.ignored = one.region == nullptr;
  }
  if (one.relay != nullptr) tell_facts(one);
  if (one.relay != nullptr || one.gone || one.ignored || monotonic_ns() < one.again_at_ns) return;
  try {
    one.relay = std::make_unique<Relay>(one.region, wire_connect(host_, port_));
    one.told.clear();
    one.facts_at_ns = one.facts_after_ns = 0;
    ++connections_;
    problems_.erase(path);
  } catch (const Error& error) {
    problems_[path] = error.what();
    one.again_at_ns = monotonic_ns() + kAgainNs;
  }
}

bool FolderRelays::step() {
  meet_regions();
  bool any = false;
  bool all_gone = true;
  for (auto& [path, one] : relayed_) {
    keep(path, one);
    if (one.ignored) continue;
    any = true;
    all_gone = all_gone && one.gone;
  }
  return !(any && all_gone);
}

}  // namespace dynamiccl
