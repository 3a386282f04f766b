#include "profiles/machine_model_file.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/error.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

const std::string kFolder = std::string(DYNAMICCL_SOURCE_DIR) + "/profiles/machines";

const std::string kTwoNodes = R"(description = "two nodes"
source = "assumed"
nodes = 2
[links.network]
latency = "2us"
gbytes_per_s = 12.5
source = "assumed"
)";

}  // namespace

TEST_CASE("every machine that comes with the program reads, and says its sources",
          "[B-33][B-34][B-35][B-36]") {
  const auto names = machine_model_names(kFolder);
  REQUIRE(names.size() >= 10);
  for (const auto& name : names) {
    INFO(name);
    const MachineModel machine = read_machine_model(name, kFolder);
    CHECK(machine.ranks() >= 4);
    CHECK_FALSE(machine.description.empty());
  }
  // The parts of the published testbeds.
  CHECK(read_machine_model("rtx3080x4", kFolder).link(LinkTier::node).at(1).bytes_per_us == 16e3);
  const MachineModel cluster = read_machine_model("rtx2080ti-8x4", kFolder);
  CHECK(cluster.ranks() == 32);
  CHECK(cluster.link(LinkTier::network).at(1).bytes_per_us == 12.5e3);
  CHECK(read_machine_model("v100x4", kFolder).ranks() == 4);
  CHECK(read_machine_model("nvlink-ib400", kFolder).link(LinkTier::network).at(1).bytes_per_us ==
        50e3);
}

TEST_CASE("a machine's links have classes by size, and --set changes a key") {
  const MachineModel machine = parse_machine_model(
      kTwoNodes +
          "[[links.network.class]]\nfrom = \"64KiB\"\nlatency = \"9us\"\ngbytes_per_s = 5\n",
      "lab.toml", {"nodes=3"});
  CHECK(machine.name == "lab");
  CHECK(machine.nodes == 3);
  CHECK(machine.link(LinkTier::network).at(65535).latency_us == 2);
  CHECK(machine.link(LinkTier::network).at(65536).latency_us == 9);
  CHECK(machine.link(LinkTier::network).at(65536).bytes_per_us == 5e3);
}

TEST_CASE("mistakes of a machine are named with their places") {
  const auto refused = [](const std::string& text, const char* message) {
    CHECK_THROWS_MATCHES(parse_machine_model(text, "lab.toml"), Error,
                         MessageMatches(ContainsSubstring(message)));
  };
  refused("nodes = 2\n", "description");
  refused(kTwoNodes + "latencies = 3\n", "lab.toml:8:1: unknown key");
  refused(kTwoNodes + "[topology]\nshape = \"fattree\"\nsource = \"x\"\n",
          "lab.toml:9:9: unknown shape \"fattree\"");
  refused(kTwoNodes + "[topology]\nshape = \"torus\"\nsource = \"x\"\n",
          "a torus needs the key dimensions");
  refused(kTwoNodes + "[topology]\nshape = \"torus\"\ndimensions = [2, 2]\nsource = \"x\"\n",
          "a torus of these counts has 4 nodes, and nodes is 2");
  refused(
      kTwoNodes + "[topology]\nshape = \"torus\"\ndimensions = [2]\nsites = 2\nsource = \"x\"\n",
      "lab.toml:11:9: sites is of cross-site, and the shape is torus");
  refused(kTwoNodes + "[topology]\nshape = \"cross-site\"\nsites = 2\nsource = \"x\"\n",
          "links.wide is absent: there are several sites");
  refused(kTwoNodes +
              "[topology]\nshape = \"fat-tree\"\ndown = [2]\nup = [1, 1]\ncables = [1]\n"
              "source = \"x\"\n",
          "lab.toml:11:6: up has 2 here, one for each of the 1");
  refused("ranks_per_node = 2\n" + kTwoNodes, "links.node is absent: a node has several ranks");
  CHECK_THROWS_MATCHES(read_machine_model("fat-tree-1042", kFolder), Error,
                       MessageMatches(ContainsSubstring("Did you mean \"fat-tree-1024\"")));
}
