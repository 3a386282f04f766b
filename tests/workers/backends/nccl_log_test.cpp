#include <catch2/catch_test_macros.hpp>

#include "workers/backends/nccl_log.hpp"

using namespace dynamiccl;

namespace {

constexpr const char* kLog =
    "host:12:34 [0] NCCL INFO Using network Socket\n"
    "host:12:34 [0] NCCL INFO Channel 00/24 : 0 1 2 3\n"
    "host:12:34 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    "host:12:34 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n"
    "host:12:34 [0] NCCL INFO Channel 00 : 0[0] -> 3[3] via SHM/direct/direct\n"
    "host:12:34 [0] NCCL INFO Channel 02/0 : 2[0] -> 0[0] [receive] via NET/Socket/0\n"
    "host:12:34 [0] NCCL INFO Channel 02/0 : x[0] -> 0[0] via NET/Socket/0\n"
    "\n[2026-01-01 00:00:00] host:12:34 [0] misc/socket.cc:9 NCCL WARN Duplicate GPU detected";

}  // namespace

TEST_CASE("NCCL's log names the way between every pair of ranks", "[C-39]") {
  const auto found = parse_nccl_log(kLog);
  CHECK(found.ways.size() == 4);
  CHECK(found.ways.at("P2P/CUMEM") == 1);
  CHECK(found.pairs.at({0, 1}) == std::set<std::string>{"P2P/CUMEM", "P2P/CUMEM/read"});
  CHECK(found.pairs.at({0, 3}) == std::set<std::string>{"SHM/direct/direct"});
  CHECK(found.pairs.at({2, 0}) == std::set<std::string>{"NET/Socket/0"});
  CHECK(found.networks == std::set<std::string>{"Socket"});
  CHECK(found.warnings == std::set<std::string>{"Duplicate GPU detected"});
}

TEST_CASE("a log without connections and one that is cut off say nothing wrong", "[C-39]") {
  CHECK(parse_nccl_log("").ways.empty());
  CHECK(parse_nccl_log("Channel 00/0 : 0[0] -> 1[1] via ").ways.empty());
  CHECK(parse_nccl_log("Channel 00/0 : 0[0] -> 1").pairs.empty());
  CHECK(parse_nccl_log("Channel via  ->  : ").pairs.empty());
}

TEST_CASE("connections of one kind name the transport, of several are mixed", "[C-39]") {
  CHECK(transport_of_way("P2P/CUMEM") == "p2p");
  CHECK(transport_of_way("SHM/direct/direct") == "shm");
  CHECK(transport_of_way("NET/IB/0/GDRDMA") == "net");
  CHECK(transport_of_counts(4, 0, 0) == "p2p");
  CHECK(transport_of_counts(0, 2, 0) == "shm");
  CHECK(transport_of_counts(0, 0, 2) == "net");
  CHECK(transport_of_counts(4, 0, 2) == "mixed");
}

TEST_CASE("the log says what names the host", "[C-39]") {
  CHECK(parse_nccl_log(kLog).host.empty());
  CHECK(parse_nccl_log("h:1:2 [0] NCCL INFO NCCL_HOSTID set by environment to onehost shm, GPUs "
                       "one each\n")
            .host == "onehost shm, GPUs one each");
}
