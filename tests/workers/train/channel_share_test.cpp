#include "workers/train/channel_share.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "tests/workers/train/idle_communicator.hpp"

using namespace dynamiccl;
using Catch::Matchers::WithinRel;

TEST_CASE("blocks hold multiprocessors for as long as they run", "[A-09][E-92]") {
  // Channel 1 has no proxy: its peer is on the same machine.
  const std::vector<ChannelTimes> channels{{3000, 2500, 2000}, {1000, 0, 0}, {0, 0, 0}};
  CHECK_THAT(sm_share(channels, 100, 1000), WithinRel(0.04));
  CHECK(sm_share(channels, 2, 1000) == 1);
  CHECK(sm_share(channels, 0, 1000) == 0);
  CHECK(sm_share({}, 100, 1000) == 0);
  const nlohmann::json told = channels_json(channels, 100, 1000);
  CHECK_THAT(told["sm_share"].get<double>(), WithinRel(0.04));
  REQUIRE(told["channels"].size() == 2);
  CHECK(told["channels"][0]["network_us"] == 2000);
  CHECK(told["channels"][1]["channel"] == 1);
  CHECK(told["channels"][1]["proxy_us"] == 0);
}

TEST_CASE("where nobody tells of channels there is no share", "[E-92]") {
  testing::IdleCommunicator comm(0, 2);
  comm.watch_channels(ChannelDetail::all);
  CHECK(!sm_share_of(comm, 1000));
}
