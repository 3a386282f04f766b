// Two "hosts" are two folders with a region each; only TCP joins them.
#include "tuner/control/relay.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "tests/tuner/control/calls.hpp"
#include "tuner/control/member.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kCommunicator = 77;
constexpr std::int64_t kSecond = 1'000'000'000;

struct Hosts {
  std::array<std::string, 2> folders;
  Hosts() {
    for (std::string& folder : folders) {
      folder = fs::temp_directory_path() / "relay-XXXXXX";
      REQUIRE(mkdtemp(folder.data()) != nullptr);
    }
  }
  ~Hosts() {
    for (const std::string& folder : folders) fs::remove_all(folder);
  }
  std::shared_ptr<Region> region(std::size_t host) const {
    std::string problem;
    return Region::open_or_make(folders[host], {kCommunicator, 2, 2, true, nullptr}, problem);
  }
};

template <class F>
bool until(F&& condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    usleep(1000);
  }
  return false;
}

}  // namespace

TEST_CASE("ranks of two hosts switch at one call", "[E-118][E-119][threads]") {
  const Hosts hosts;
  const auto desk = std::make_shared<RelayDesk>(0);
  const int port = desk->port();
  HostsLeader leader(desk, kCommunicator, 5 * kSecond);
  std::array<std::unique_ptr<Member>, 2> ranks;
  std::vector<std::unique_ptr<Relay>> relays;
  for (std::size_t host = 0; host < 2; ++host) {
    ranks[host] = std::make_unique<Member>(hosts.region(host), 5 * kSecond);
    relays.push_back(std::make_unique<Relay>(hosts.region(host), wire_connect("localhost", port)));
  }
  const auto reaches = [&](HostsLeader::Progress wanted) {
    return until([&] {
      for (auto& relay : relays) relay->step();
      return leader.poll() == wanted;
    });
  };
  REQUIRE(reaches(HostsLeader::Progress::free));
  leader.propose(with_channels(8), 3);
  const auto prepared = [&](std::size_t host) {
    return until([&] {
      relays[host]->step();
      return unpack(hosts.region(host)->header().word.load()).state == ProposalState::prepared;
    });
  };
  REQUIRE(prepared(0));
  REQUIRE(prepared(1));
  SECTION("committed") {
    CHECK(call(*ranks[0]) == 0);
    CHECK(call(*ranks[1]) == 0);
    REQUIRE(reaches(HostsLeader::Progress::settling));
    REQUIRE(until([&] {
      relays[0]->step();
      relays[1]->step();
      return unpack(hosts.region(0)->header().word.load()).state == ProposalState::committed &&
             unpack(hosts.region(1)->header().word.load()).state == ProposalState::committed;
    }));
    for (auto& rank : ranks) {
      CHECK(call(*rank) == 0);
      CHECK(call(*rank) == 0);
      CHECK(call(*rank) == 8);
    }
    CHECK(reaches(HostsLeader::Progress::free));
    CHECK(leader.committed());
  }
  SECTION("a leader that dies undecided ends the job at the boundary, not before") {
    for (int i = 0; i < 3; ++i) CHECK(call(*ranks[0]) == 0);
    hosts.region(0)->header().relay_lost = 1;
    CHECK_FALSE(ranks[0]->lost());
    call(*ranks[0]);
    CHECK(ranks[0]->lost());
    CHECK(hosts.region(0)->slot(0).waits == 1);
  }
}

TEST_CASE("ranks do not wait for the verdict that a killed relay never passed on",
          "[E-118][E-119]") {
  const Hosts hosts;
  auto desk = std::make_shared<RelayDesk>(0);
  HostsLeader leader(desk, kCommunicator, 5 * kSecond);
  Member here(hosts.region(0), 60 * kSecond);
  Member there(hosts.region(1), 60 * kSecond);
  auto killed = std::make_unique<Relay>(hosts.region(0), wire_connect("localhost", desk->port()));
  Relay other(hosts.region(1), wire_connect("localhost", desk->port()));
  REQUIRE(until([&] {
    killed->step();
    other.step();
    return leader.poll() == HostsLeader::Progress::free;
  }));
  leader.propose(with_channels(8), 1);
  REQUIRE(until([&] {
    killed->step();
    return unpack(hosts.region(0)->header().word.load()).state == ProposalState::prepared;
  }));
  CHECK(call(here) == 0);  // acknowledges
  killed.reset();
  CHECK(hosts.region(0)->header().relay_lost == 0);
  const Relay next(hosts.region(0), wire_connect("localhost", desk->port()));
  // At the boundary: ended at once, though the new relay is well.
  call(here);
  call(here);
  CHECK(here.lost());
}

TEST_CASE("a leader of several hosts is led through the interface that learners know",
          "[E-117][E-119]") {
  const Hosts hosts;
  const auto desk = std::make_shared<RelayDesk>(0);
  auto here = std::make_unique<Member>(hosts.region(0), 5 * kSecond);
  auto there = std::make_unique<Member>(hosts.region(1), 5 * kSecond);
  AcrossHostsLeader leader(hosts.region(0), desk, kSecond);
  FolderRelays relays(hosts.folders[1], "localhost", desk->port());
  const auto reaches = [&](TableLeader::Progress wanted) {
    return until([&] {
      relays.step();
      return leader.poll() == wanted;
    });
  };
  REQUIRE(reaches(TableLeader::Progress::free));
  leader.propose(with_channels(4), 2);
  REQUIRE(until([&] {
    relays.step();
    return leader.poll() == TableLeader::Progress::open &&
           unpack(hosts.region(1)->header().word.load()).state == ProposalState::prepared;
  }));
  for (auto* rank : {here.get(), there.get()}) CHECK(call(*rank) == 0);
  REQUIRE(reaches(TableLeader::Progress::settling));
  REQUIRE(until([&] {
    relays.step();
    leader.poll();
    return unpack(hosts.region(1)->header().word.load()).state == ProposalState::committed;
  }));
  for (int i = 0; i < 3; ++i)
    for (auto* rank : {here.get(), there.get()}) CHECK(call(*rank) == (i < 1 ? 0 : 4));
  CHECK(reaches(TableLeader::Progress::free));
  CHECK(leader.committed());
  CHECK(leader.furthest_call() == 4);
  // A host that is gone is an error, after which no table changes; ranks that leave end it.
  there.reset();
  CHECK(until([&] { return !relays.step(); }));
  here.reset();
  CHECK(leader.poll() == TableLeader::Progress::ended);
}

TEST_CASE("a rank past the boundary that makes no further call holds nobody up there",
          "[E-118][E-119]") {
  const Hosts hosts;
  const auto desk = std::make_shared<RelayDesk>(0);
  HostsLeader leader(desk, kCommunicator, 60 * kSecond);
  Member here(hosts.region(0), 60 * kSecond);
  Member there(hosts.region(1), 60 * kSecond);
  Relay near(hosts.region(0), wire_connect("localhost", desk->port()));
  Relay far(hosts.region(1), wire_connect("localhost", desk->port()));
  REQUIRE(until([&] {
    near.step();
    far.step();
    return leader.poll() == HostsLeader::Progress::free;
  }));
  leader.propose(with_channels(8), 1);
  // As queued collectives are: three calls ahead, and there until the other rank follows.
  for (int i = 0; i < 3; ++i) CHECK(call(there) == 0);
  REQUIRE(until([&] {
    near.step();
    return unpack(hosts.region(0)->header().word.load()).state == ProposalState::prepared;
  }));
  CHECK(call(here) == 0);  // acknowledges, and would wait at the boundary
  CHECK(until([&] {
    near.step();
    far.step();
    static_cast<void>(leader.poll());
    return unpack(hosts.region(0)->header().word.load()).state == ProposalState::aborted;
  }));
  CHECK(call(here) == 0);
  CHECK(hosts.region(0)->slot(0).waits == 0);
}

TEST_CASE("relays tell a leader of all hosts where their ranks run", "[E-117][E-119]") {
  const Hosts hosts;
  const auto desk = std::make_shared<RelayDesk>(0);
  const Member here(hosts.region(0), 5 * kSecond);
  const Member there(hosts.region(1), 5 * kSecond);
  int asked = 0;
  FolderRelays relays(hosts.folders[1], "localhost", desk->port(), [&](std::uint64_t communicator) {
    CHECK(communicator == kCommunicator);
    // A rank may tell later than it comes.
    std::map<std::uint32_t, std::string> told;
    if (++asked > 2) told[1] = "{\"rank\":1}";
    return told;
  });
  SECTION("before anyone leads") {
    CHECK(until([&] {
      relays.step();
      return !desk->told().empty();
    }));
    CHECK(desk->ranks_waiting(kCommunicator) == 1);
    CHECK(desk->told().at({kCommunicator, 1}) == "{\"rank\":1}");
  }
  SECTION("and to one who leads already") {
    AcrossHostsLeader leader(hosts.region(0), desk, kSecond);
    CHECK(until([&] {
      relays.step();
      return leader.poll() == TableLeader::Progress::free && asked > 2 && !desk->told().empty();
    }));
    CHECK(desk->told().at({kCommunicator, 1}) == "{\"rank\":1}");
  }
}

TEST_CASE("a desk keeps no more of what relays tell than it has room for", "[E-119]") {
  RelayDesk desk(0);
  WireMessage facts;
  facts.kind = WireMessage::Kind::facts;
  facts.text = std::string(kMostFactsBytes, 'x');
  // The newest of each rank, and 64 MiB of all.
  for (int i = 0; i < 300; ++i) desk.keep_facts(facts);
  CHECK(desk.told().size() == 1);
  for (facts.ranks = 1; facts.ranks < 1000; ++facts.ranks) desk.keep_facts(facts);
  CHECK(desk.told().size() == 256);
  facts.ranks = 0;
  facts.text = "{}";
  desk.keep_facts(facts);
  CHECK(desk.told().at({0, 0}) == "{}");
  for (facts.ranks = 1000; facts.ranks < 10000; ++facts.ranks) desk.keep_facts(facts);
  CHECK(desk.told().size() == 4096);
}

TEST_CASE("what is no message of a relay ends the connection", "[E-119]") {
  int port = 0;
  const int listener = wire_listen(port);
  WireSocket relay = wire_connect("localhost", port);
  std::optional<WireSocket> leader;
  REQUIRE(until([&] {
    if (auto one = wire_accept(listener)) leader.emplace(std::move(*one));
    return leader.has_value();
  }));
  close(listener);
  WireMessage facts;
  facts.kind = WireMessage::Kind::facts;
  facts.text = std::string(kMostFactsBytes, 'f');
  std::optional<WireMessage> heard;
  const auto hears = [&] {
    relay.receive();
    heard = leader->receive();
    return heard.has_value() || !leader->alive();
  };
  relay.send(facts);
  REQUIRE(until(hears));
  REQUIRE(heard);
  CHECK(heard->text == facts.text);
  // As somebody else may send it: a length is believed only as far as it may go.
  WireHeader wrong;
  SECTION("a text that is too long") {
    wrong.kind = WireMessage::Kind::facts;
    wrong.text_bytes = kMostFactsBytes + 1;
  }
  SECTION("a text where none belongs") {
    wrong.kind = WireMessage::Kind::status;
    wrong.text_bytes = 1;
  }
  SECTION("a kind that there is not") {
    // A desk keeps one of each kind: of kinds without end it would keep messages without end.
    constexpr auto kLast = static_cast<std::uint32_t>(WireMessage::Kind::facts);
    wrong.kind = static_cast<WireMessage::Kind>(kLast + 1);
  }
  SECTION("another version") { wrong.magic = WireHeader::kMagic - 1; }
  REQUIRE(write(relay.descriptor(), &wrong, sizeof(wrong)) == sizeof(wrong));
  REQUIRE(until(hears));
  CHECK_FALSE(heard);
  CHECK_FALSE(leader->alive());
}

TEST_CASE("ranks that left before anyone led are not waited for", "[E-117][E-119]") {
  const Hosts hosts;
  const auto desk = std::make_shared<RelayDesk>(0);
  const Member here(hosts.region(0), 5 * kSecond);
  auto there = std::make_unique<Member>(hosts.region(1), 5 * kSecond);
  FolderRelays relays(hosts.folders[1], "localhost", desk->port());
  CHECK(until([&] {
    relays.step();
    return relays.connections() == 1 && desk->ranks_waiting(kCommunicator) == 1;
  }));
  CHECK_FALSE(desk->has_left(kCommunicator));
  there.reset();
  CHECK(until([&] { return !relays.step(); }));
  CHECK(until([&] { return desk->arrivals(1).empty() && desk->waiting() == 0; }));
  CHECK(desk->has_left(kCommunicator));
  AcrossHostsLeader leader(hosts.region(0), desk, kSecond);
  CHECK(leader.poll() == TableLeader::Progress::ended);
}

TEST_CASE("a leader's death is noticed by its relays, and the committed table stays",
          "[E-118][E-119]") {
  const Hosts hosts;
  auto desk = std::make_shared<RelayDesk>(0);
  const int port = desk->port();
  auto leader = std::make_unique<HostsLeader>(desk, kCommunicator, kSecond);
  Member rank(hosts.region(0), kSecond);
  Relay relay(hosts.region(0), wire_connect("localhost", port));
  CHECK(relay.step());
  CHECK(leader->poll() == HostsLeader::Progress::joining);
  leader.reset();
  desk.reset();
  CHECK(until([&] { return !relay.step(); }));
  for (int i = 0; i < 10; ++i) CHECK(call(rank) == 0);
  CHECK_FALSE(rank.lost());
  CHECK_THROWS_AS(wire_connect("localhost", port), Error);
}

TEST_CASE("delayed ranks of two hosts never differ, and waits are counted",
          "[E-118][E-119][threads]") {
  constexpr int kSwitches = 40;
  const Hosts hosts;
  const auto desk = std::make_shared<RelayDesk>(0);
  const int port = desk->port();
  HostsLeader leader(desk, kCommunicator, kSecond);
  std::atomic<bool> stop{false};
  std::array<std::vector<unsigned>, 2> used;
  std::array<std::atomic<std::size_t>, 2> made{};
  std::vector<std::thread> threads;
  for (std::size_t host = 0; host < 2; ++host) {
    threads.emplace_back([&, host] {
      std::string problem;
      Member member(hosts.region(host), 20 * kSecond);
      std::mt19937 random(static_cast<unsigned>(host));
      while (!stop) {
        usleep(static_cast<unsigned>(random() % 2000));
        // As queued collectives do: no rank is far ahead of the other.
        while (!stop && made[host] > made[1 - host] + 2) usleep(100);
        used[host].push_back(call(member));
        ++made[host];
      }
    });
    threads.emplace_back([&, host] {
      Relay relay(hosts.region(host), wire_connect("localhost", port));
      std::mt19937 random(static_cast<unsigned>(10 + host));
      while (!stop && relay.step()) usleep(static_cast<unsigned>(random() % 6000));
    });
  }
  int committed = 0;
  for (int i = 1; i <= kSwitches; ++i) {
    REQUIRE(until([&] { return leader.poll() == HostsLeader::Progress::free; }));
    leader.propose(with_channels(static_cast<std::uint8_t>(i)), leader.spread() + 4 + i % 5);
    REQUIRE(until([&] { return leader.poll() != HostsLeader::Progress::open; }));
    if (leader.committed()) ++committed;
  }
  REQUIRE(until([&] { return leader.poll() == HostsLeader::Progress::free; }));
  stop = true;
  for (auto& thread : threads) thread.join();
  const std::size_t common = std::min(used[0].size(), used[1].size());
  used[0].resize(common);
  used[1].resize(common);
  CHECK(used[0] == used[1]);
  CHECK(10 * committed >= 3 * kSwitches);
  INFO(hosts.region(0)->slot(0).waits + hosts.region(1)->slot(0).waits);
}

TEST_CASE("a host whose ranks leave first ends the communicator, and is no loss",
          "[E-117][E-119]") {
  const Hosts hosts;
  const auto desk = std::make_shared<RelayDesk>(0);
  const Member here(hosts.region(0), 5 * kSecond);
  auto there = std::make_unique<Member>(hosts.region(1), 5 * kSecond);
  AcrossHostsLeader leader(hosts.region(0), desk, 60 * kSecond);
  FolderRelays relays(hosts.folders[1], "localhost", desk->port());
  const auto reaches = [&](TableLeader::Progress wanted) {
    return until([&] {
      relays.step();
      return leader.poll() == wanted;
    });
  };
  REQUIRE(reaches(TableLeader::Progress::free));
  leader.propose(with_channels(4), 1000);
  there.reset();
  CHECK(reaches(TableLeader::Progress::ended));
  // Nobody waits for what will never be decided.
  CHECK(until([&] {
    static_cast<void>(leader.poll());
    return unpack(hosts.region(0)->header().word.load()).state != ProposalState::prepared;
  }));
}

TEST_CASE("a leader that ends takes its open proposal back, and no rank waits",
          "[E-118][E-119][threads]") {
  const Hosts hosts;
  const auto desk = std::make_shared<RelayDesk>(0);
  Member here(hosts.region(0), 60 * kSecond);
  Member there(hosts.region(1), 60 * kSecond);
  auto leader = std::make_unique<AcrossHostsLeader>(hosts.region(0), desk, 60 * kSecond);
  std::atomic<bool> stop{false};
  std::thread relaying([&] {
    FolderRelays relays(hosts.folders[1], "localhost", desk->port());
    while (!stop && relays.step()) usleep(500);
  });
  const auto state = [&](std::size_t host) {
    return unpack(hosts.region(host)->header().word.load()).state;
  };
  REQUIRE(until([&] { return leader->poll() == TableLeader::Progress::free; }));
  leader->propose(with_channels(8), 2);
  REQUIRE(until([&] {
    static_cast<void>(leader->poll());
    return state(0) == ProposalState::prepared && state(1) == ProposalState::prepared;
  }));
  CHECK(call(here) == 0);  // acknowledges, and would wait at the boundary
  leader.reset();
  CHECK(until([&] { return state(1) == ProposalState::aborted; }));
  CHECK(state(0) == ProposalState::aborted);
  stop = true;
  relaying.join();
  for (int i = 0; i < 5; ++i)
    for (Member* rank : {&here, &there}) CHECK(call(*rank) == 0);
  CHECK_FALSE(here.lost());
  CHECK_FALSE(there.lost());
  CHECK(hosts.region(0)->slot(0).waits == 0);
}

TEST_CASE("relays that have gone wait at no desk, whatever they had said", "[E-119]") {
  RelayDesk desk(0);
  WireMessage hello;
  hello.communicator = 99;
  WireMessage status = hello;
  status.kind = WireMessage::Kind::status;
  for (int i = 0; i < 20; ++i) {
    auto leaves = wire_connect("localhost", desk.port());
    leaves.send(hello);
    for (status.boundary = 0; status.boundary < i; ++status.boundary) leaves.send(status);
  }
  auto stays = wire_connect("localhost", desk.port());
  stays.send(hello);
  for (status.boundary = 1; status.boundary <= 1000; ++status.boundary) stays.send(status);
  CHECK(until([&] {
    CHECK(desk.arrivals(1).empty());
    return desk.waiting() == 1;
  }));
  // Whoever leads later hears the newest of it.
  auto arrived = desk.arrivals(99);
  REQUIRE(arrived.size() == 1);
  auto& late = arrived.front();
  const auto& said = late.said;
  CHECK(until([&] {
    stays.receive();
    while (const auto message = late.socket.receive()) late.keep(*message);
    return said.back().boundary == 1000;
  }));
  REQUIRE(said.size() == 2);
  CHECK(said[0].kind == WireMessage::Kind::hello);
  CHECK(said[1].kind == WireMessage::Kind::status);
  CHECK(desk.waiting() == 0);
}

TEST_CASE("numbers of tables and calls end where the word has no room for more", "[E-118]") {
  const auto desk = std::make_shared<RelayDesk>(0);
  const auto relay_at = [&](HostsLeader& leader, std::uint32_t epoch) {
    WireSocket relay = wire_connect("localhost", desk->port());
    WireMessage message;
    message.communicator = kCommunicator;
    message.ranks = 1;
    message.epoch = epoch;
    relay.send(message);
    message.kind = WireMessage::Kind::status;
    message.boundary = kMostBoundary - 1;
    relay.send(message);
    CHECK(until([&] { return leader.poll() != HostsLeader::Progress::joining; }));
    return relay;
  };
  SECTION("the last table at the last call") {
    HostsLeader leader(desk, kCommunicator, 60 * kSecond);
    WireSocket relay = relay_at(leader, kMostEpoch - 1);
    REQUIRE(leader.poll() == HostsLeader::Progress::free);
    leader.propose(with_channels(2), 100);
    std::optional<WireMessage> said;
    REQUIRE(until([&] { return (said = relay.receive()).has_value(); }));
    CHECK(said->epoch == kMostEpoch);
    CHECK(said->boundary == kMostBoundary);
  }
  SECTION("calls that no word holds are not believed") {
    HostsLeader leader(desk, kCommunicator, 60 * kSecond);
    WireSocket relay = relay_at(leader, 1);
    WireMessage message;
    message.kind = WireMessage::Kind::status;
    message.communicator = kCommunicator;
    message.ranks = 1;
    message.epoch = 1;
    const auto say = [&](std::int64_t boundary, std::int64_t behind) {
      message.boundary = boundary;
      message.behind = behind;
      relay.send(message);
    };
    say(100, 90);
    REQUIRE(until(
        [&] { return leader.poll() == HostsLeader::Progress::free && leader.spread() == 10; }));
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    say(100, -1);
    say(kMost, 90);
    say(kMost, -kMost);
    say(-1, 0);
    for (int i = 0; i < 50; ++i) {
      static_cast<void>(leader.poll());
      CHECK(leader.spread() == 10);
      usleep(1000);
    }
    leader.propose(with_channels(2), 5);
    std::optional<WireMessage> said;
    REQUIRE(until([&] { return (said = relay.receive()).has_value(); }));
    CHECK(said->boundary == 105);
  }
  SECTION("no further one") {
    HostsLeader leader(desk, kCommunicator, 60 * kSecond);
    const WireSocket relay = relay_at(leader, kMostEpoch);
    CHECK(leader.poll() == HostsLeader::Progress::ended);
  }
  SECTION("a relay puts nothing into a word that does not hold it") {
    const Hosts hosts;
    int port = 0;
    const int listener = wire_listen(port);
    Relay relay(hosts.region(0), wire_connect("localhost", port));
    std::optional<WireSocket> leader;
    REQUIRE(until([&] {
      if (auto one = wire_accept(listener)) leader.emplace(std::move(*one));
      return leader.has_value();
    }));
    WireMessage message;
    message.kind = WireMessage::Kind::prepare;
    message.communicator = kCommunicator;
    message.epoch = 1;
    message.boundary = kMostBoundary + 1;
    leader->send(message);
    message.boundary = 5;
    message.epoch = kMostEpoch + 1;
    leader->send(message);
    for (int i = 0; i < 50; ++i) {
      relay.step();
      usleep(1000);
    }
    CHECK(hosts.region(0)->header().word.load() == 0);
    close(listener);
  }
}
