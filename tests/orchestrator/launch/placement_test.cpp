// Where ranks on nodes are, against where they were put.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "orchestrator/launch/machine.hpp"
#include "orchestrator/launch/observe.hpp"
#include "orchestrator/launch/post_mortem.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

FactsRecord on_host(int rank, const std::string& host) {
  FactsRecord record;
  record.rank = rank;
  record.facts = {{"system", {{"hostname", host}, {"boot_id", "one"}}}};
  return record;
}

std::string openmpi_reason(const std::string& host, ClusterStart start) {
  ClusterOptions options;
  options.start = start;
  options.nodes = 2;
  options.hosts = {{host, 2}, {"node2", 2}};
  EnvironmentProfile bare;
  bare.name = "bare-metal";
  const auto can = inspect_cluster({{"bare-metal", bare}}, "/nowhere", ClusterSession(options, 2));
  const auto found = can.pair_reasons.find({"bare-metal", Backend::openmpi});
  CHECK_FALSE(can.pair_reasons.contains({"bare-metal", Backend::gloo}));
  return found == can.pair_reasons.end() ? "" : found->second;
}

}  // namespace

TEST_CASE("ranks that were spread over nodes are told from those that fill them") {
  const std::vector<std::string> of_ranks{"a", "a", "b", "b"};
  // Names are the list's own; what counts is who is together.
  CHECK(
      why_misplaced(of_ranks, {on_host(0, "x"), on_host(1, "x"), on_host(2, "y"), on_host(3, "y")})
          .empty());
  CHECK_THAT(
      why_misplaced(of_ranks, {on_host(0, "x"), on_host(1, "y"), on_host(2, "x"), on_host(3, "y")}),
      ContainsSubstring("the ranks that a was given run elsewhere (0 on x; 1 on y)"));
  CHECK(why_misplaced({}, {on_host(0, "x"), on_host(1, "y")}).empty());
}

TEST_CASE("a login that sshd does not take is told with the setting that takes it") {
  CHECK_THAT(refused_login_clause("kex_exchange_identification: read: Connection reset by peer\n"),
             ContainsSubstring("MaxStartups"));
  CHECK(refused_login_clause("Connection reset by peer").empty());
}

TEST_CASE("over how many hosts ranks go is known before they start") {
  ClusterOptions options;
  options.hosts = {{"a", 2}, {"b", 2}, {"c", 2}};
  const auto can = inspect_cluster({}, "/nowhere", ClusterSession(options, 2));
  CHECK(can.nodes_of(1) == 1);
  CHECK(can.nodes_of(2) == 2);
  CHECK(can.nodes_of(6) == 3);
  // What files of parameters say there is not known here.
  CHECK(can.may_force_algorithms);
}

TEST_CASE("a host's name that Open MPI would wait for ever with is no host for it") {
  for (const char* name : {"root@node1", "my_node"})
    CHECK_THAT(openmpi_reason(name, ClusterStart::ssh), ContainsSubstring(name));
  CHECK(openmpi_reason("node-1.lan", ClusterStart::ssh).empty());
}
