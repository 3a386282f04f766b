// How gradients are shared out among servers, and what that puts on the busiest link.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <numeric>
#include <vector>

#include "train/plan/exchange_plan.hpp"

using namespace dynamiccl;

namespace {

/// What BytePS' paper finds best for n machines that compute and k that only sum: the share of all
/// bytes that one of each kind sums, and the time in units of all bytes over the bandwidth.
struct BytePsOptimum {
  double computing;
  double summing;
  double time;
};
BytePsOptimum byteps_optimum(double n, double k) {
  const double d = n * n + k * n - 2 * k;
  return {(n - k) / d, 2 * (n - 1) / d, 2 * n * (n - 1) / d};
}

/// Elements that leave the busiest rank in a step: pushes, and answers to every other worker.
std::size_t busiest(const std::vector<Piece>& pieces, int ranks, int first_worker) {
  std::vector<std::size_t> sent(static_cast<std::size_t>(ranks), 0);
  for (const auto& piece : pieces) {
    for (int worker = first_worker; worker < ranks; ++worker) {
      if (worker == piece.server) continue;
      sent[static_cast<std::size_t>(worker)] += piece.count;
      sent[static_cast<std::size_t>(piece.server)] += piece.count;
    }
  }
  return *std::max_element(sent.begin(), sent.end());
}

}  // namespace

TEST_CASE("shards are what BytePS finds best, on every worker or on as many servers", "[d-03]") {
  const int workers = GENERATE(2, 3, 4, 8, 32);
  const std::vector<std::size_t> counts{70'000, 300, 1, 1'000'000, 64, 8'192};
  const double all = std::accumulate(counts.begin(), counts.end(), 0.0);
  constexpr std::size_t kLargest = 1000;
  auto pieces = cut(counts, each_alone(counts.size()), kLargest);
  const double slack = 2.0 * workers * kLargest / all;
  assign_servers(pieces, workers);
  std::vector<double> shares(static_cast<std::size_t>(workers), 0);
  for (const auto& piece : pieces)
    shares[static_cast<std::size_t>(piece.server)] += static_cast<double>(piece.count) / all;
  TrainingSpec spec;
  spec.method = TrainingMethod::bsp_ps;
  const auto check_time = [&](int ranks, double time) {
    const int first_worker = ranks - workers;
    const double sent = static_cast<double>(busiest(pieces, ranks, first_worker)) / all;
    CHECK(sent >= time - 1e-9);
    CHECK(sent <= time + slack);
    // Dedicated servers' volumes are of both directions.
    CHECK(std::abs(parameter_volumes(spec, workers) / (first_worker > 0 ? 2 : 1) - time) < 1e-9);
  };
  const auto colocated = byteps_optimum(workers, 0);
  for (const double share : shares) CHECK(std::abs(share - colocated.computing) <= kLargest / all);
  spec.placement = ServerPlacement::colocated;
  check_time(workers, colocated.time);
  // As many dedicated servers as workers: those sum nothing.
  const auto dedicated = byteps_optimum(workers, workers);
  CHECK(dedicated.computing == 0);
  for (const double share : shares) CHECK(std::abs(share - dedicated.summing) <= kLargest / all);
  spec.placement = ServerPlacement::dedicated;
  spec.servers = workers;
  check_time(2 * workers, dedicated.time);
}

TEST_CASE("every server has a share, however few parts a model is cut into", "[d-03]") {
  const auto method = GENERATE(TrainingMethod::bsp_ps, TrainingMethod::wfbp_ps);
  const int servers = GENERATE(1, 2, 3, 8);
  const auto placement = GENERATE(ServerPlacement::dedicated, ServerPlacement::colocated);
  TrainingSpec spec;
  spec.method = method;
  spec.placement = placement;
  spec.servers = servers;
  // Far below the usual part, nearly all of it one tensor.
  std::vector<Gradient> gradients{{1, 4 * 10'000}, {2, 4 * 525'000}, {3, 4 * 400}};
  const std::size_t all = 4 * 535'400;
  const ExchangePlan plan = make_exchange_plan(spec, gradients, CostTable());
  CHECK(plan.servers == servers);
  CHECK(plan.colocated == (placement == ServerPlacement::colocated));
  CHECK(plan.first_worker() == (plan.colocated ? 0 : servers));
  std::size_t summed = 0;
  for (int server = 0; server < servers; ++server) {
    const std::size_t shard = plan.shard_bytes(server);
    CHECK(shard > 0);
    // No worse than cutting one large tensor leaves it.
    CHECK(static_cast<double>(shard) <= 1.25 * static_cast<double>(all) / servers);
    summed += shard;
  }
  CHECK(summed == all);
}
