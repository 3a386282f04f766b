// What a launch that failed is told to have failed by.
#include "orchestrator/launch/post_mortem.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

using Interfaces = std::map<unsigned, std::string>;

const Interfaces kBefore{{1, "lo"}, {2, "eth0"}, {7, "veth7"}};
constexpr const char* kUcx =
    "MPIDI_UCX_init_world(285).....: \n"
    "init_worker(71)...............:  ucx function returned with failed status(ucx_init.c 71 "
    "init_worker No such device)\n";

std::string clause(const std::string& said, const Interfaces& after,
                   Backend backend = Backend::mpich) {
  return vanished_interface_clause({backend, said, kBefore, after, "eth0"});
}

}  // namespace

TEST_CASE("an interface that went while UCX opened it is told, with those that came and went") {
  const auto told = clause(kUcx, {{1, "lo"}, {2, "eth0"}, {9, "veth9"}});
  CHECK_THAT(told, ContainsSubstring("one was gone when it came to it"));
  CHECK_THAT(told, ContainsSubstring("came or went: veth7, veth9)"));
  CHECK_THAT(told, ContainsSubstring("--resume"));
  CHECK_THAT(told, ContainsSubstring("UCX_NET_DEVICES = \"eth0\" in [knobs.mpich.env]"));
  // It came and went in between: nobody knows its name.
  CHECK_THAT(clause(kUcx, kBefore), ContainsSubstring("came to it: those of containers"));
}

TEST_CASE(
    "interfaces that changed are told of a start that failed without a word, and of no other") {
  // The name is the same, the interface another.
  const Interfaces again{{1, "lo"}, {2, "eth0"}, {9, "veth7"}};
  const auto told = clause(" \n", again);
  CHECK_THAT(told, ContainsSubstring("nobody said why"));
  CHECK_THAT(told, ContainsSubstring("meanwhile (veth7)"));
  CHECK(clause("", kBefore).empty());
  CHECK(clause("", again, Backend::gloo).empty());
  CHECK(clause("cannot open shared object file", again).empty());
  CHECK(clause("cudaGetDevice: No such device", kBefore).empty());
  Interfaces many = kBefore;
  for (unsigned index = 20; index < 29; ++index) many[index] = "veth" + std::to_string(index);
  CHECK_THAT(clause("", many),
             ContainsSubstring("meanwhile (veth20, veth21, veth22, veth23 and more)"));
}
