#include "workers/train/link_cost.hpp"

#include <algorithm>
#include <ctime>
#include <numeric>

#include "core/statistics.hpp"
#include "workers/measure/clock.hpp"
#include "workers/train/exchange/exchange.hpp"

namespace dynamiccl {
namespace {

constexpr int kRepeats = 3;
/// Messages under way at once where a server answers: one alone would show both ways in turn.
constexpr std::size_t kPipelined = 4;

double cpu_now_us() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

std::vector<std::size_t> sizes_up_to(std::size_t elements) {
  std::vector<std::size_t> sizes;
  for (std::size_t size = 256; size < elements; size *= 8) sizes.push_back(size);
  sizes.push_back(elements);
  return sizes;
}

struct Timing {
  double total_us = 0;
  double second_us = 0;
  double cpu_us = 0;
};

Timing time_once(GradientExchange& exchange, std::size_t messages) {
  Timing timing;
  exchange.take_spans();
  const double cpu_us = cpu_now_us();
  const double start_us = now_us();
  exchange.start_step();
  for (std::size_t i = 0; i < messages; ++i) exchange.ready(i);
  for (std::size_t i = 0; i < messages; ++i) exchange.wait(i);
  timing.total_us = now_us() - start_us;
  exchange.flush();
  timing.cpu_us = cpu_now_us() - cpu_us;
  for (const auto& span : exchange.take_spans()) {
    if (std::string_view(span.what) == "all-gather")
      timing.second_us += span.end_us - span.start_us;
  }
  return timing;
}

}  // namespace

LinkCost measure_link(Communicator& comm, const TrainingSpec& spec, int servers,
                      const std::vector<std::size_t>& counts) {
  const std::size_t all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const std::size_t messages = servers > 0 ? kPipelined : 1;
  const std::size_t largest = servers > 0 ? std::max<std::size_t>(all / kPipelined, 1) : all;
  std::vector<float> gradients(largest * messages, 0.0F);
  std::vector<float> sums(servers > 0 ? gradients.size() : 0);
  std::vector<CostTable::Point> time;
  std::vector<CostTable::Point> second;
  std::vector<CostTable::Point> cpu;
  for (const std::size_t size : sizes_up_to(largest)) {
    ExchangePlan plan;
    plan.method = spec.method;
    plan.servers = servers;
    plan.counts.assign(messages, size);
    plan.credit_bytes = size * messages * sizeof(float);
    plan.pieces = cut(plan.counts, each_alone(messages), size);
    if (servers > 0) assign_servers(plan.pieces, servers);
    barrier(comm);
    std::vector<double> values(3, 0);
    if (comm.rank() < servers) {
      GradientServer(comm, plan).serve(1 + kRepeats);
    } else {
      GradientExchange exchange(comm, plan, gradients.data(),
                                servers > 0 ? sums.data() : gradients.data());
      time_once(exchange, messages);
      std::vector<double> totals;
      std::vector<double> seconds;
      std::vector<double> cpus;
      for (int i = 0; i < kRepeats; ++i) {
        const Timing timing = time_once(exchange, messages);
        totals.push_back(timing.total_us);
        seconds.push_back(timing.second_us);
        cpus.push_back(timing.cpu_us);
      }
      const auto share = [&](const std::vector<double>& v) {
        return median(v) / static_cast<double>(messages);
      };
      values = {share(totals), share(seconds), share(cpus)};
    }
    values = max_over_ranks(comm, std::move(values));
    const std::size_t bytes = size * sizeof(float);
    time.push_back({bytes, values[0] - values[1]});
    second.push_back({bytes, values[1]});
    cpu.push_back({bytes, values[2]});
  }
  return {CostTable(time), CostTable(second), CostTable(cpu), false};
}

}  // namespace dynamiccl
