#include "tuner/simulator/machine_cost.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <set>

using namespace dynamiccl;
using Catch::Matchers::WithinRel;

namespace {

/// Links between nodes of 2 us and 10,000 bytes/us, in nodes of 1 us and 100,000.
MachineModel machine_of(int nodes, int ranks_per_node, MachineShape shape,
                        std::vector<int> counts) {
  MachineModel machine;
  machine.name = "test";
  machine.nodes = nodes;
  machine.ranks_per_node = ranks_per_node;
  machine.shape = shape;
  machine.counts = std::move(counts);
  machine.links[0].classes = {{0, 1, 1e5}};
  machine.links[1].classes = {{0, 2, 1e4}};
  machine.links[2].classes = {{0, 100, 1e3}};
  return machine;
}

double time_of(const MachineModel& machine, const std::string& algorithm, double bytes,
               int ranks = 0, Collective collective = Collective::allreduce) {
  for (const auto& time :
       predict_collective(machine, collective, ranks > 0 ? ranks : machine.ranks(), bytes))
    if (time.algorithm == algorithm) return time.us;
  FAIL("no prediction of " << algorithm);
  return 0;
}

MachineModel fat_tree(std::vector<int> up, std::vector<int> cables) {
  MachineModel machine = machine_of(64, 1, MachineShape::fat_tree, {8, 8});
  machine.up = std::move(up);
  machine.cables = std::move(cables);
  return machine;
}

constexpr double kMiB = 1 << 20;

}  // namespace

TEST_CASE("flat algorithms on one switch take what the formulas say", "[F-13]") {
  const MachineModel star = machine_of(8, 1, MachineShape::star, {});
  CHECK_THAT(time_of(star, "ring", kMiB), WithinRel(14 * 2 + 2 * 7.0 / 8 * kMiB / 1e4));
  CHECK_THAT(time_of(star, "recursive_doubling", kMiB), WithinRel(3 * 2 + 3 * kMiB / 1e4));
  CHECK_THAT(time_of(star, "rabenseifner", kMiB), WithinRel(6 * 2 + 2 * 7.0 / 8 * kMiB / 1e4));
  CHECK_THAT(time_of(star, "nonoverlapping", kMiB), WithinRel(6 * 2 + 6 * kMiB / 1e4));
  // Seven workers send to the server one after another, and it answers them so.
  CHECK_THAT(time_of(star, "parameter_server", kMiB), WithinRel(14 * 2 + 14 * kMiB / 1e4));
  MachineModel summing = star;
  summing.sum_bytes_per_us = 5e3;
  CHECK_THAT(time_of(summing, "ring", kMiB) - time_of(star, "ring", kMiB),
             WithinRel(7.0 / 8 * kMiB / 5e3, 1e-9));
}

TEST_CASE("groups of ranks count as worked out by hand", "[F-13]") {
  // Two nodes of four ranks, which share their node's port.
  const MachineModel two = machine_of(2, 4, MachineShape::star, {});
  const double in_node = 3 * 1 + 3.0 / 4 * kMiB / 1e5;
  // Four pairs of ranks at once, a quarter of the bytes each, over one port.
  const double across = 2 * 2 + 4 * (2 * 1.0 / 2 * kMiB / 4) / 1e4;
  CHECK_THAT(time_of(two, "split_ring", kMiB), WithinRel(2 * in_node + across));
  // One rank of each node, all bytes; before and after it a tree of two rounds.
  CHECK_THAT(time_of(two, "two_level_ring", kMiB),
             WithinRel(2 * (2 * 1 + 2 * kMiB / 1e5) + 2 * 2 + kMiB / 1e4));
  // A ring of all ranks has one message on the port, and waits for it in every round.
  CHECK_THAT(time_of(two, "ring", kMiB), WithinRel(14 * 2 + 2 * 7.0 / 8 * kMiB / 1e4));
  // Recursive doubling: twice within the node, then all four ranks of a node at once.
  CHECK_THAT(time_of(two, "recursive_doubling", kMiB),
             WithinRel(2 * (1 + kMiB / 1e5) + 2 + 4 * kMiB / 1e4));
  // Ranks that lie in one node alone use none of the network.
  CHECK_THAT(time_of(two, "ring", kMiB, 4), WithinRel(6 * 1 + 2 * 3.0 / 4 * kMiB / 1e5));
}

TEST_CASE("groups that call at once share links as worked out by hand", "[F-19]") {
  using enum Collective;
  const MachineModel two = machine_of(2, 4, MachineShape::star, {});
  // Four neighbours each: within the nodes. Recursive doubling has two rounds, a ring six.
  CHECK_THAT(predict_groups(two, allreduce, 4, 1, 1024, 8).us, WithinRel(2 * 1 + 2 * 1024 / 1e5));
  // Four pairs across, all over one port of each node.
  const PredictedTime pairs = predict_groups(two, allreduce, 2, 4, kMiB, 8);
  CHECK_THAT(pairs.us, WithinRel(2 + 4 * kMiB / 1e4));
  CHECK(pairs.limit == "network");
  // Ranks 0 and 2 of each node, 1 and 3: two groups in a node, without a link in common.
  CHECK_THAT(predict_groups(two, allgather, 2, 2, kMiB, 8).us, WithinRel(1 + kMiB / 2 / 1e5));
  // Stages: four messages over the port at once.
  CHECK_THAT(predict_groups(two, sendrecv, 2, 4, kMiB, 8).us, WithinRel(2 + 4 * kMiB / 1e4));
  // First and last of four stages of two ranks: those between take no part.
  CHECK_THAT(predict_groups(two, allreduce, 2, 6, kMiB, 8).us, WithinRel(2 + 2 * kMiB / 1e4));
}

TEST_CASE("shapes of as many nodes and links give different times", "[F-14][F-18][H-09]") {
  MachineModel dragonfly = machine_of(64, 1, MachineShape::dragonfly, {4, 2, 4, 2});
  dragonfly.cables = {1, 1, 1};
  const std::vector<MachineModel> shapes{machine_of(64, 1, MachineShape::star, {}),
                                         fat_tree({1, 4}, {1, 1}),
                                         machine_of(64, 1, MachineShape::torus, {4, 4, 4}),
                                         dragonfly,
                                         machine_of(64, 1, MachineShape::cross_site, {2}),
                                         machine_of(64, 1, MachineShape::bcube, {8, 2})};
  // By distances of powers of two, and between neighbours.
  std::set<std::pair<std::int64_t, std::int64_t>> different;
  for (const MachineModel& machine : shapes) {
    const auto nanoseconds = [&](const char* algorithm) {
      return static_cast<std::int64_t>(time_of(machine, algorithm, kMiB) * 1000);
    };
    different.emplace(nanoseconds("recursive_doubling"), nanoseconds("ring"));
  }
  CHECK(different.size() == shapes.size());
  // By hand. Two sites: all 32 ranks of one exchange with the other's over one link.
  CHECK_THAT(time_of(shapes[4], "recursive_doubling", kMiB),
             WithinRel(6 * 2 + 100 + 5 * kMiB / 1e4 + 32 * kMiB / 1e3));
  // A tree with four cables for eight nodes: three rounds below a switch, three above it, where
  // eight messages share four cables and the way is twice as long.
  CHECK_THAT(time_of(shapes[1], "recursive_doubling", kMiB),
             WithinRel(3 * 2 + 3 * 4 + (3 + 3 * 2) * kMiB / 1e4));
  // With a cable for each it is the one switch but for the longer way.
  CHECK_THAT(time_of(fat_tree({1, 8}, {1, 1}), "recursive_doubling", kMiB) -
                 time_of(shapes[0], "recursive_doubling", kMiB),
             WithinRel(6.0, 1e-9));
  // A torus of 4 x 4 x 4: distances 1, 4 and 16 are one hop, 2, 8 and 32 two; the messages of two
  // neighbours share the link between them on the second hop.
  CHECK_THAT(time_of(shapes[2], "recursive_doubling", kMiB),
             WithinRel(3 * 2 + 3 * 4 + (3 + 3 * 2) * kMiB / 1e4));
}

TEST_CASE("a message's size decides which class of a link holds") {
  MachineModel star = machine_of(2, 1, MachineShape::star, {});
  star.links[1].classes = {{0, 2, 1e3}, {4096, 10, 1e4}};
  CHECK_THAT(time_of(star, "recursive_doubling", 4095), WithinRel(2 + 4095 / 1e3));
  CHECK_THAT(time_of(star, "recursive_doubling", 4096), WithinRel(10 + 4096 / 1e4));
}

TEST_CASE("every modelled operation is predicted for any count of ranks, the fastest first") {
  const MachineModel machine = machine_of(13, 3, MachineShape::star, {});
  for (const Collective collective :
       {Collective::allreduce, Collective::broadcast, Collective::reduce, Collective::allgather,
        Collective::reduce_scatter, Collective::gather, Collective::alltoall, Collective::push,
        Collective::pull, Collective::push_pull})
    for (const int ranks : {2, 3, 7, 39}) {
      const auto times = predict_collective(machine, collective, ranks, 1e5);
      CHECK_FALSE(times.empty());
      CHECK(std::is_sorted(times.begin(), times.end(),
                           [](const auto& a, const auto& b) { return a.us < b.us; }));
      for (const auto& time : times) {
        INFO(name_of(collective) << " of " << ranks << ": " << time.algorithm);
        CHECK(time.us > 0);
        CHECK_THAT(time.start_up_us + time.bytes_us + time.sum_us, WithinRel(time.us));
      }
    }
}

TEST_CASE(
    "what a model describes is expected to take that, a default the least, the rest the most") {
  const auto expected =
      expected_log_us({{.algorithm = "ring", .us = 8}, {.algorithm = "tree", .us = 2}},
                      {"", "ring", "", "tree", "ring"});
  REQUIRE(expected.size() == 5);
  CHECK(expected[0] == expected[3]);
  CHECK_THAT(std::exp(expected[1]), WithinRel(8.0));
  CHECK_THAT(std::exp(expected[2]), WithinRel(16.0));
  CHECK_THAT(std::exp(expected[3]), WithinRel(2.0));
  CHECK(expected[4] == expected[1]);
  // Without any model nothing is expected to differ.
  const auto nothing = expected_log_us({}, {"", "", ""});
  CHECK(nothing[0] == nothing[1]);
  CHECK(nothing[1] == nothing[2]);
}
