#include "workers/train/training_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string_view>

#include "core/digest.hpp"

namespace dynamiccl {
namespace {

constexpr double kOracleTolerance = 1e-6;
constexpr double kGpuOracleTolerance = 1e-5;  // its sums may go in another order

}  // namespace

void check_oracle(Communicator& comm, const ExchangePlan& plan, int steps, TrainingWorker* worker,
                  const std::function<std::unique_ptr<StepDriver>()>& driver, CellRecord& record) {
  const double tolerance = comm.works_on_gpu() ? kGpuOracleTolerance : kOracleTolerance;
  double difference = 0;
  double wrong = 0;
  if (worker == nullptr) {
    GradientServer server(comm, plan);
    server.take_weights();
    server.serve(steps);
  } else {
    {
      const auto driving = driver();
      for (int i = 0; i < steps; ++i) driving->step();
      driving->finish();
    }
    const auto trained = worker->weights();
    worker->reset();
    for (int i = 0; i < steps; ++i) worker->step_of_all();
    const auto expected = worker->weights();
    for (std::size_t i = 0; i < trained.size(); ++i) {
      const double one = std::abs(static_cast<double>(trained[i]) - expected[i]);
      difference = std::isfinite(one) ? std::max(difference, one) : 1e30;
      wrong += one <= tolerance ? 0 : 1;
    }
    worker->reset();
    record.checked += trained.size();
    record.wrong += static_cast<std::uint64_t>(wrong);
  }
  const auto shared = max_over_ranks(comm, {difference, wrong});
  record.training->max_difference = shared[0];
  if (shared[1] == 0) return;
  record.status = CellStatus::failed;
  record.reason = fmt::format(
      "after {} steps {:.0f} weights differ from the sequential oracle by more than {}, at most by "
      "{:.3g}",
      steps, shared[1], tolerance, shared[0]);
}

void compare_ranks(Communicator& comm, int servers, const std::vector<std::size_t>& counts,
                   TrainingWorker* worker, CellRecord& record) {
  std::vector<float> first(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  std::vector<float> own;
  if (worker != nullptr) own = worker->weights();
  if (comm.rank() == servers) first = own;
  broadcast_host(comm, first.data(), first.size() * sizeof(float), servers);
  double wrong = 0;
  for (std::size_t i = 0; i < own.size(); ++i)
    wrong += std::bit_cast<std::uint32_t>(own[i]) == std::bit_cast<std::uint32_t>(first[i]) ? 0 : 1;
  record.checked += own.size();
  record.wrong += static_cast<std::uint64_t>(wrong);
  record.training->parameters_sha256 = sha256_hex(
      std::string_view(reinterpret_cast<const char*>(first.data()), first.size() * sizeof(float)));
  const double all = sum_over_ranks(comm, {wrong})[0];
  if (all == 0 || record.status == CellStatus::failed) return;
  record.status = CellStatus::failed;
  record.reason =
      fmt::format("{:.0f} weights are not the same bits on all workers after the last step", all);
}

}  // namespace dynamiccl
