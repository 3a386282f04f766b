#include "profiles/machine_declarations.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/error.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("a machine file places nodes by what holds them", "[B-20][B-21][B-31]") {
  const auto machine = parse_declarations(R"(
aggregation = "sharp"
topology = "fat-tree"
deployment = "edge"
[switches]
leaf1 = ["node1", "node2"]
leaf2 = ["node3"]
[racks]
r1 = ["leaf1", "node4"]
r2 = "leaf2"
[zones]
east = ["r1", "r2"]
west = "node5"
)",
                                          "lab.toml");
  CHECK(machine.aggregation == "sharp");
  CHECK(machine.topology == "fat-tree");
  CHECK(machine.deployment == "edge");
  REQUIRE(machine.places.size() == 5);
  const auto place = [&](const char* node) {
    const auto& p = machine.places.at(node);
    CHECK(p.how == "declared");
    return p.leaf_switch + "/" + p.rack + "/" + p.zone;
  };
  CHECK(place("node1") == "leaf1/r1/east");
  CHECK(place("node3") == "leaf2/r2/east");
  CHECK(place("node4") == "/r1/east");
  CHECK(place("node5") == "//west");
}

TEST_CASE("a topology is one that the tuner knows, by each of its spellings", "[E-37]") {
  const auto topology = [](const std::string& text) {
    return parse_declarations("topology = \"" + text + "\"", "lab.toml").topology;
  };
  CHECK(topology("BCube") == "bcube");
  CHECK(topology("2D-Torus") == "torus");
  CHECK(topology("mixed") == "mixed");
  CHECK_THROWS_MATCHES(
      topology("fat-treee"), Error,
      MessageMatches(ContainsSubstring("lab.toml:1:12: unknown topology \"fat-treee\"; known: ") &&
                     ContainsSubstring("Did you mean \"fat-tree\"?")));
}

TEST_CASE("mistakes of a machine file are named with their places") {
  const auto refused = [](const char* text, const char* message) {
    CHECK_THROWS_MATCHES(parse_declarations(text, "lab.toml"), Error,
                         MessageMatches(ContainsSubstring(message)));
  };
  refused("topologie = 1", "lab.toml:1:1: unknown key");
  refused("deployment = \"moon\"", "\"datacenter\", \"edge\" or \"federated\"");
  refused("[switches]\na = [\"n1\"]\nb = [\"n1\"]", "lab.toml:3:5: n1 stands at switch a already");
  refused("[switches]\na = \"n1\"\n[racks]\na = \"n2\"", "lab.toml:4:5: \"a\" is the name of");
  refused("[racks]\na = 3", "lab.toml:2:5");
  refused("[racks]\na = \"\"", "lab.toml:2:5");
  refused("zones = \"east\"", "lab.toml:1:9");
  refused("[switches", "lab.toml:1:");
}

TEST_CASE("what processes are told of declarations holds no places", "[B-31]") {
  CHECK(declared_text({}).empty());
  MachineDeclarations machine;
  machine.topology = "fat-tree";
  machine.places["node1"].leaf_switch = "leaf1";
  CHECK(declared_text(machine) == R"({"topology":"fat-tree"})");
}
