#include "train/exchange/reducers.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>
#include <vector>

#include "tests/train/idle_communicator.hpp"
#include "workers/aggregation/aggregation_link.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;

namespace {

/// A launch's aggregator, of one rank. It ends with its input.
class LoneAggregator {
 public:
  LoneAggregator()
      : said_(std::filesystem::temp_directory_path() / fmt::format("reducers-test-{}", getpid())),
        held_(popen(fmt::format("'{}' 1 abcd > '{}'", DYNAMICCL_AGGREGATOR, said_).c_str(), "w")) {
    REQUIRE(held_ != nullptr);
    for (int tries = 0; tries < 6000 && port_ == 0; ++tries) {
      std::ifstream(said_) >> port_;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::filesystem::remove(said_);
  }
  ~LoneAggregator() { pclose(held_); }
  LoneAggregator(const LoneAggregator&) = delete;
  LoneAggregator& operator=(const LoneAggregator&) = delete;
  [[nodiscard]] int port() const { return port_; }

 private:
  std::string said_;
  FILE* held_;
  int port_ = 0;
};

}  // namespace

TEST_CASE("what an aggregator cannot sum is no number, and the training goes on to say so") {
  const LoneAggregator aggregator;
  REQUIRE(aggregator.port() > 0);
  AggregationLink link(fmt::format("127.0.0.1:{}/abcd", aggregator.port()), 0, 1);
  IdleCommunicator alone(0, 1);
  ExchangePlan plan;
  plan.method = TrainingMethod::bsp_a2a;
  plan.packing = Packing::aggregated;
  plan.pieces = {{0, 3, 0, 1}, {3, 2, 1, 2}};
  plan.path.aggregation = &link;
  std::vector<float> gradients{1, 2, std::numeric_limits<float>::infinity(), 4, 5};
  const auto reducer = make_reducer(alone, plan, gradients.data(), gradients.data());
  CHECK(reducer->start(0));
  CHECK(reducer->start(1));
  for (std::size_t i = 0; i < 3; ++i) CHECK(std::isnan(gradients[i]));
  CHECK(gradients[3] == 4);
  CHECK(gradients[4] == 5);
}
