#pragma once

#include <list>
#include <memory>

#include "tuner/control/region.hpp"
#include "tuner/control/wire.hpp"

namespace dynamiccl {

/// One per host and communicator: puts the leader's proposals and verdicts into the host's region,
/// and tells the leader what the ranks here have said. Where the leader is lost while a proposal is
/// undecided, the ranks that wait for it end with an error: only the leader knows what other hosts
/// were told.
class Relay {
 public:
  /// @throws Error(environment) when another relay or leader holds the region
  Relay(std::shared_ptr<Region> region, WireSocket leader);
  /// Cheap; call it every few milliseconds.
  /// @returns false when the leader is gone
  bool step();

 private:
  void prepare(const WireMessage& message);
  void verdict(const WireMessage& message);
  [[nodiscard]] WireMessage status() const;
  std::shared_ptr<Region> region_;
  WireSocket leader_;
  WireMessage told_{};
};

/// Proposes tables to the ranks of one communicator on several hosts.
class HostsLeader {
 public:
  enum class Progress { joining, free, open, settling };
  /// @param patience_ns after which an undecided proposal is aborted
  HostsLeader(int listener, std::uint64_t communicator, std::int64_t patience_ns);
  ~HostsLeader();
  HostsLeader(const HostsLeader&) = delete;
  HostsLeader& operator=(const HostsLeader&) = delete;

  /// @throws Error(environment) when a host is lost after all had joined
  Progress poll();
  /// @param ahead calls between the furthest rank and the boundary
  void propose(const CallTable& table, std::int64_t ahead);
  [[nodiscard]] bool committed() const { return committed_; }
  [[nodiscard]] std::int64_t spread() const;

 private:
  struct Host {
    WireSocket socket;
    WireMessage last{};
  };
  void take_in();
  void decide(bool commit);
  [[nodiscard]] std::uint32_t sum(std::uint32_t WireMessage::*field) const;

  int listener_;
  std::uint64_t communicator_;
  std::int64_t patience_ns_;
  std::list<Host> hosts_;
  std::uint32_t ranks_ = 0;
  std::uint32_t epoch_ = 0;
  bool open_ = false;
  bool committed_ = false;
  bool joined_ = false;
  std::int64_t proposed_at_ns_ = 0;
};

}  // namespace dynamiccl
