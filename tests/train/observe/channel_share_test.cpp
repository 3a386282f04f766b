#include "train/observe/channel_share.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "tests/train/idle_communicator.hpp"
#include "workers/device/device.hpp"

using namespace dynamiccl;
using Catch::Matchers::WithinRel;

namespace {

struct IdleDevice : Device {
  [[nodiscard]] std::string name() const override { return ""; }
  [[nodiscard]] std::string pci() const override { return ""; }
  std::shared_ptr<std::byte> allocate(std::size_t) override { return nullptr; }
  std::shared_ptr<std::byte> allocate_pinned(std::size_t) override { return nullptr; }
  void copy_to_host(void*, const void*, std::size_t) override {}
  void copy_to_device(void*, const void*, std::size_t) override {}
  void fill(const DataSource&, void*, int, std::uint64_t, std::size_t) override {}
  DataVerdict verify(const DataSource&, const void*, const std::vector<ExpectedPart>&) override {
    return {};
  }
  void poison(void*, std::size_t) override {}
  void multiply_for(std::chrono::milliseconds) override {}
};

/// Counts how often it was told to look at kernels.
struct WatchedCommunicator : testing::IdleCommunicator {
  using IdleCommunicator::IdleCommunicator;
  IdleDevice gpu;
  int looks = 0;
  Device* device() override { return &gpu; }
  void watch_channels(ChannelDetail detail) override { looks += detail == ChannelDetail::all; }
};

}  // namespace

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

TEST_CASE("kernels are looked at in the last step, unless a server adds on its GPU", "[A-09]") {
  WatchedCommunicator comm(1, 2);
  CellRecord record;
  TrainingSpec spec;
  int steps = 0;
  const auto step = [&](bool) { return ++steps, 7.0; };
  CHECK(watched_step(comm, false, spec, step, record) == 7);
  CHECK(comm.looks == 0);
  CHECK(watched_step(comm, true, spec, step, record) == 7);
  CHECK(comm.looks == 1);
  // NCCL's communicator would not end: there are sends and receives of unlike sizes.
  spec.server_sums = ServerSums::gpu;
  CHECK(watched_step(comm, true, spec, step, record) == 7);
  CHECK(comm.looks == 1);
  CHECK(steps == 3);
}
