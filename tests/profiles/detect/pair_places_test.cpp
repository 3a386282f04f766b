#include "profiles/detect/pair_places.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "profiles/detect/facts.hpp"
#include "profiles/detect/latency_places.hpp"
#include "profiles/detect/regime.hpp"
#include "profiles/detect/round_trips.hpp"
#include "tests/profiles/detect/fixture_tree.hpp"

using namespace dynamiccl;
using dynamiccl::test::FixtureTree;
using nlohmann::json;

namespace {

/// A rank on a node of two sockets, the first of two dies: CPUs 0-1 and 2-3, the second of one.
RankPlace rank_on(const std::string& node, const json& affinity) {
  return {node,
          {{"cpu",
            {{"die_cpus", json::array({{0, 1}, {2, 3}, {4, 5}})},
             {"socket_cpus", json::array({{0, 1, 2, 3}, {4, 5}})}}},
           {"process", {{"affinity", affinity}}}}};
}

PairPlace of_two(const RankPlace& a, const RankPlace& b, const NodePlaces& places = {}) {
  const auto pairs = pair_places({a, b}, places);
  REQUIRE(pairs.mix.size() == 1);
  CHECK(pairs.mix.begin()->second == 1);
  return pairs.worst();
}

}  // namespace

TEST_CASE("a pair on one node shares the smallest thing that holds both bindings", "[F-06]") {
  CHECK(of_two(rank_on("a", {0}), rank_on("a", {1})) == PairPlace::die);
  CHECK(of_two(rank_on("a", {0}), rank_on("a", {2, 3})) == PairPlace::socket);
  // Over two dies of a socket: on none of them, but surely in the socket.
  CHECK(of_two(rank_on("a", {1, 2}), rank_on("a", {0})) == PairPlace::socket);
  CHECK(of_two(rank_on("a", {0}), rank_on("a", {4})) == PairPlace::node);
  CHECK(of_two(rank_on("a", {0, 1, 2, 3, 4, 5}), rank_on("a", {0})) == PairPlace::node);
  for (const json& damaged : {json(), json("all"), json::array(), json::array({"x"})}) {
    CHECK(of_two(rank_on("a", damaged), rank_on("a", damaged)) == PairPlace::node);
    CHECK(of_two({"a", damaged}, {"a", damaged}) == PairPlace::node);
  }
}

TEST_CASE("a pair on two nodes shares the nearest level that both are known to be on", "[F-06]") {
  const auto between = [](const NodePlace& a, const NodePlace& b) {
    return of_two(rank_on("a", {0}), rank_on("b", {0}), {{"a", a}, {"b", b}});
  };
  const NodePlace first{"s1", "r1", "z1", "declared"};
  CHECK(between(first, first) == PairPlace::leaf_switch);
  CHECK(between(first, {"s2", "r1", "z1", ""}) == PairPlace::rack);
  CHECK(between(first, {"s2", "r2", "z1", ""}) == PairPlace::zone);
  CHECK(between(first, {"s2", "r2", "z2", ""}) == PairPlace::apart);
  CHECK(between(first, {"s2", "", "z1", ""}) == PairPlace::zone);
  CHECK(between(first, {"s2", "r2", "", ""}) == PairPlace::network);
  CHECK(between({"", "", "", ""}, {"", "", "", ""}) == PairPlace::network);
  CHECK(of_two(rank_on("a", {0}), rank_on("b", {0})) == PairPlace::network);
}

TEST_CASE("the mix counts every pair once", "[F-07][E-42]") {
  // Pairs: 1 on a die, 1 in a socket with each of those two = 2, and 3 to the other node.
  const auto pairs =
      pair_places({rank_on("a", {0}), rank_on("a", {1}), rank_on("a", {2}), rank_on("b", {0})},
                  {{"a", {"s1", "", "", "declared"}}, {"b", {"s1", "", "", "Slurm's topology"}}});
  CHECK(pairs.mix.at(PairPlace::die) == Catch::Approx(1.0 / 6));
  CHECK(pairs.mix.at(PairPlace::socket) == Catch::Approx(2.0 / 6));
  CHECK(pairs.mix.at(PairPlace::leaf_switch) == Catch::Approx(3.0 / 6));
  CHECK(pairs.worst() == PairPlace::leaf_switch);
  const auto stored = to_json(pairs);
  CHECK(stored["worst"] == "switch");
  CHECK(pair_places_text(stored) ==
        "16.7 % die, 33.3 % socket, 50 % switch (nodes: Slurm's topology and declared)");
  CHECK(to_json(pair_places({rank_on("a", {0})}, {})).is_null());
  CHECK(to_json(pair_places({}, {})).is_null());
  for (const char* damaged : {"null", "3", R"({"mix": 3})", R"({"mix": {"die": "all"}})"})
    CHECK(pair_places_text(json::parse(damaged)).empty());
}

TEST_CASE("places and declarations are details of a regime and no part of its id", "[B-21][B-31]") {
  const auto facts = FixtureTree("infiniband-sharp").facts();
  RegimeContext context;
  context.library_version = "4.1.4";
  const Regime plain = derive_regime({facts, facts}, context);
  CHECK(plain.json["pairs"]["mix"].size() == 1);
  CHECK_FALSE(plain.json.contains("declared"));
  context.nodes = {"node1", "node2"};
  context.places["node1"] = context.places["node2"] = {"leaf", "", "", "declared"};
  context.declared_topology = "fat-tree";
  context.declared_deployment = "edge";
  const Regime placed = derive_regime({facts, facts}, context);
  CHECK(placed.id == plain.id);
  CHECK(placed.name == plain.name);
  CHECK(placed.json["pairs"]["worst"] == "switch");
  CHECK(placed.json["declared"] == json{{"topology", "fat-tree"}, {"deployment", "edge"}});
}

TEST_CASE("declarations reach processes that name their regime themselves", "[B-31]") {
  setenv(kDeclaredVariable, R"({"topology": "fat-tree", "aggregation": "sharp"})", 1);
  auto facts = probe_facts({.declared = {}, .nvml = false});
  CHECK(facts["declared"] == json{{"topology", "fat-tree"}, {"aggregation", "sharp"}});
  setenv(kDeclaredVariable, R"({"topology": 3, "deployment": "edge", "more": "x"})", 1);
  CHECK(probe_facts({.declared = {}, .nvml = false})["declared"] == json{{"deployment", "edge"}});
  setenv(kDeclaredVariable, "[", 1);
  CHECK_FALSE(probe_facts({.declared = {}, .nvml = false}).contains("declared"));
  unsetenv(kDeclaredVariable);
  RegimeContext context;
  CHECK(derive_regime({facts, facts}, context).json["declared"] == json{{"topology", "fat-tree"}});
  // Who is told by its caller keeps to it.
  context.declared_topology = "torus";
  CHECK(derive_regime({facts}, context).json["declared"] == json{{"topology", "torus"}});
}

namespace {

/// Round trips of nodes a, b, c, ... in the order of their pairs: ab, ac, ..., bc, ...
NodeLatencies round_of(std::size_t count, const std::vector<double>& pairs) {
  NodeLatencies round;
  for (std::size_t i = 0; i < count; ++i)
    round.nodes.emplace_back(1, static_cast<char>('a' + static_cast<int>(i)));
  round.us.assign(count, std::vector<double>(count, 0));
  std::size_t next = 0;
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = i + 1; j < count; ++j) round.us[i][j] = pairs.at(next++);
  return round;
}

}  // namespace

TEST_CASE("nodes stand together where round trips leap", "[F-06][F-07]") {
  // Two pairs at a switch each, below one rack.
  const auto two = places_by_latency(
      {round_of(4, {20, 90, 95, 91, 97, 22}), round_of(4, {25, 99, 90, 92, 93, 24})});
  REQUIRE(two.size() == 4);
  CHECK(two.at("a").leaf_switch == two.at("b").leaf_switch);
  CHECK(two.at("c").leaf_switch == two.at("d").leaf_switch);
  CHECK(two.at("a").leaf_switch != two.at("c").leaf_switch);
  CHECK(two.at("a").rack == two.at("d").rack);
  CHECK(two.at("a").how == "measured latency, 22 us | 90 us");
  const std::vector<RankPlace> ranks{
      {"a", nullptr}, {"b", nullptr}, {"c", nullptr}, {"d", nullptr}};
  const auto pairs = pair_places(ranks, two);
  CHECK(pairs.worst() == PairPlace::rack);
  CHECK(pairs.mix.at(PairPlace::leaf_switch) == Catch::Approx(1.0 / 3));
  CHECK(pairs.how.find("nodes: measured latency") != std::string::npos);
  // Three leaps: switches, racks, zones, and between zones nothing is shared.
  const std::vector<double> far{10, 100, 1000, 10000, 100, 1000, 10000, 1000, 10000, 10000};
  const auto three = places_by_latency({round_of(5, far), round_of(5, far)});
  CHECK(three.at("a").zone == three.at("d").zone);
  CHECK(three.at("a").zone != three.at("e").zone);
}

TEST_CASE("latency that tells no places says nothing", "[F-06]") {
  const auto nothing = [](const NodeLatencies& one, const NodeLatencies& other) {
    return places_by_latency({one, other}).empty();
  };
  const auto alike = round_of(4, {20, 22, 24, 28, 30, 29});
  CHECK(nothing(alike, alike));
  const auto apart = round_of(4, {20, 90, 95, 91, 97, 22});
  // Rounds that do not tell the same, and one round alone.
  CHECK(nothing(apart, round_of(4, {90, 20, 95, 91, 22, 97})));
  CHECK(nothing(apart, alike));
  CHECK(places_by_latency({apart}).empty());
  // b is near to a and to c, which are far from each other.
  const auto chain = round_of(3, {20, 90, 20});
  CHECK(nothing(chain, chain));
  // One pair could not be measured; a leap of less than five microseconds.
  const auto hole = round_of(3, {0, 90, 20});
  CHECK(nothing(hole, hole));
  const auto tiny = round_of(3, {2, 5, 5});
  CHECK(nothing(tiny, tiny));
  CHECK(places_by_latency({}).empty());
}

TEST_CASE("a place that nobody answers at has no round trip") {
  for (const char* place : {"127.0.0.1:1", "node1:80", "127.0.0.1", ""})
    CHECK_FALSE(round_trip_us(place));
}
