#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tuner/control/leader.hpp"
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
  /// Passes on what a rank of this host has told of where it runs.
  /// @param facts a JSON object, kMostFactsBytes at most
  /// @returns false: too much waits to be sent; try again
  bool tell(std::uint32_t rank, const std::string& facts);

 private:
  void prepare(const WireMessage& message);
  void verdict(const WireMessage& message);
  [[nodiscard]] WireMessage status() const;
  std::shared_ptr<Region> region_;
  WireSocket leader_;
  WireHeader told_{};
  bool said_left_ = false;
};

/// Where the relays of several hosts report, each for one communicator.
class RelayDesk {
 public:
  /// @param port 0: any. @throws Error(environment) when it cannot be listened on
  explicit RelayDesk(int port) : port_(port), listener_(wire_listen(port_)) {}
  ~RelayDesk();
  RelayDesk(const RelayDesk&) = delete;
  RelayDesk& operator=(const RelayDesk&) = delete;
  [[nodiscard]] int port() const { return port_; }

  /// One that has said which communicator it speaks for.
  struct Arrival {
    WireSocket socket;
    std::vector<WireMessage> said;  ///< the newest of each kind, the newest last
    void keep(const WireMessage& message);
  };
  /// Those that have come for this communicator since, and are still there.
  std::list<Arrival> arrivals(std::uint64_t communicator);
  /// That are connected and belong to nobody yet.
  [[nodiscard]] std::size_t waiting() const;
  /// Ranks whose relays have come for this communicator, as far as they belong to nobody yet.
  [[nodiscard]] std::uint32_t ranks_waiting(std::uint64_t communicator);
  /// A host's ranks have all left, as its relay said before anyone led the communicator.
  [[nodiscard]] bool has_left(std::uint64_t communicator) const {
    return left_.contains(communicator);
  }
  /// What relays have told of ranks of their hosts, by communicator and rank, the newest of each.
  /// From elsewhere, and not looked into. Full with 4096 ranks or 64 MiB.
  using Told = std::map<std::pair<std::uint64_t, std::uint32_t>, std::string>;
  const Told& told();
  /// For who has taken a relay over.
  void keep_facts(const WireMessage& message);

 private:
  struct Unknown {
    WireSocket socket;
    std::int64_t came_ns;
  };
  void take_in();
  int port_;
  int listener_;
  std::list<Unknown> unknown_;  ///< have said nothing yet
  std::map<std::uint64_t, std::list<Arrival>> known_;
  std::set<std::uint64_t> left_;
  Told told_;
  std::size_t told_bytes_ = 0;
};

/// Proposes tables to the ranks of one communicator on several hosts.
class HostsLeader {
 public:
  enum class Progress { joining, free, open, settling, ended };
  /// @param patience_ns after which an undecided proposal is aborted
  HostsLeader(std::shared_ptr<RelayDesk> desk, std::uint64_t communicator,
              std::int64_t patience_ns);
  /// See retire().
  ~HostsLeader() {
    retire([] {});
  }
  HostsLeader(const HostsLeader&) = delete;
  HostsLeader& operator=(const HostsLeader&) = delete;

  /// @throws Error(environment) when a host is lost after all had joined
  Progress poll();
  /// @param ahead calls between the furthest rank and the boundary
  void propose(const CallTable& table, std::int64_t ahead);
  [[nodiscard]] bool committed() const { return committed_; }
  [[nodiscard]] std::int64_t spread() const;
  [[nodiscard]] std::size_t hosts() const { return hosts_.size(); }
  /// Leaves the ranks with what is decided: an open proposal is taken back, since nobody else may,
  /// and ranks wait at its boundary. Hears the relays out, for a second at most.
  /// @param meanwhile is called over and over: a relay of this thread does its part
  void retire(const std::function<void()>& meanwhile);

 private:
  struct Host {
    WireSocket socket;
    WireMessage last{};
    bool left = false;  ///< its ranks
  };
  void take_in();
  void hear(Host& host, const WireMessage& message);
  void decide(bool commit);
  [[nodiscard]] std::uint32_t sum(std::uint32_t WireMessage::*field) const;

  std::shared_ptr<RelayDesk> desk_;
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

/// The same behind what learners know: leads the ranks of all hosts and is the relay of its own,
/// whose ranks alone it observes.
class AcrossHostsLeader : public TableLeader {
 public:
  /// @throws Error(environment) when another relay or leader holds the region
  AcrossHostsLeader(std::shared_ptr<Region> region, const std::shared_ptr<RelayDesk>& desk,
                    std::int64_t patience_ns);
  ~AcrossHostsLeader() override;
  Progress poll() override;
  void propose(const CallTable& table, std::int64_t ahead) override;
  [[nodiscard]] bool committed() const override { return hosts_.committed(); }
  [[nodiscard]] std::int64_t spread() const override { return hosts_.spread(); }

 private:
  HostsLeader hosts_;
  Relay own_;
};

/// Relays all communicators that come into a folder, and comes back to a leader that was lost.
class FolderRelays {
 public:
  /// What ranks of a communicator have told of where they run, by their numbers; see Relay::tell().
  using Facts = std::function<std::map<std::uint32_t, std::string>(std::uint64_t communicator)>;
  FolderRelays(std::string folder, std::string leader_host, int leader_port, Facts facts = {});
  /// Cheap, but for two seconds at most where the leader's host does not answer; call it every few
  /// milliseconds.
  /// @returns false when all communicators that were there have gone
  bool step();
  /// What kept it from relaying, the last of each.
  [[nodiscard]] const std::map<std::string, std::string>& problems() const { return problems_; }
  [[nodiscard]] int connections() const { return connections_; }  ///< made so far

 private:
  struct Relayed {
    std::shared_ptr<Region> region;
    std::unique_ptr<Relay> relay;
    bool gone = false;
    bool ignored = false;
    std::int64_t again_at_ns = 0;
    std::set<std::uint32_t> told;  ///< ranks, to the leader that is connected
    std::int64_t facts_at_ns = 0;
    std::int64_t facts_after_ns = 0;
  };
  void meet_regions();
  void keep(const std::string& path, Relayed& one);
  void tell_facts(Relayed& one);
  std::string folder_;
  std::string host_;
  int port_;
  Facts facts_;
  std::map<std::string, Relayed> relayed_;
  std::map<std::string, std::string> problems_;
  std::int64_t look_again_at_ns_ = 0;
  int connections_ = 0;
};

}  // namespace dynamiccl
