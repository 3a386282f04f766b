#include "train/observe/link_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <numeric>
#include <random>

#include "core/statistics/statistics.hpp"
#include "train/exchange/gradient_exchange.hpp"
#include "train/exchange/lanes.hpp"
#include "train/exchange/queued_exchange.hpp"
#include "train/exchange/servers.hpp"
#include "train/observe/compute_load.hpp"
#include "workers/clock.hpp"

namespace dynamiccl {
namespace {

constexpr int kRepeats = 3;  // after one that warms up, idle and busy each
constexpr double kCalibrationUs = 20'000;
/// Messages timed as one: a training step's come one after the other, and the thread that sends
/// them is awake; where a server answers, both ways are in use at once.
constexpr std::size_t kMostTogether = 8;
constexpr std::size_t kTogetherElements = 1U << 20;
constexpr std::size_t kPipelined = 4;
static_assert(kMostLanes <= kMostTogether, "each lane is given a message");
/// Paths are not tried with messages of fewer elements: small models gain nothing that
/// communicators and buffers of their own would be worth.
constexpr std::size_t kLeastPathElements = 1U << 18;

double cpu_now_us() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

std::vector<std::size_t> sizes_up_to(std::size_t elements, std::size_t lanes) {
  std::vector<std::size_t> sizes{elements};
  for (std::size_t size = 256; size < elements; size *= 8) sizes.push_back(size);
  // The largest message that one lane carries and the smallest that all of them share.
  for (const std::size_t size : {largest_whole(lanes), largest_whole(lanes) + 1})
    if (lanes > 1 && size < elements) sizes.push_back(size);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

/// How many messages of a size are timed together: as many as a step would have under way.
/// @param all elements that there is room for
std::size_t messages_of(std::size_t size, std::size_t all, bool served, std::size_t lanes) {
  // A message that all lanes share is the only one under way.
  if (lanes > 1 && size > largest_whole(lanes)) return 1;
  const std::size_t fitting = std::min(kMostTogether, all / size);
  return std::max({std::clamp<std::size_t>(kTogetherElements / size, 1, fitting),
                   std::min(lanes, fitting), served ? kPipelined : 1});
}

struct Timing {
  double total_us = 0;
  double second_us = 0;
  double cpu_us = 0;
  double lost_us = 0;
};

void begin(StepExchange& exchange, std::size_t messages) {
  exchange.start_step();
  for (std::size_t i = 0; i < messages; ++i) exchange.ready(i);
}

/// How long second halves were under way, on one lane or several.
double second_us(StepExchange& exchange) {
  auto spans = exchange.take_spans();
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.start_us < b.start_us; });
  double sum_us = 0;
  double until_us = 0;
  for (const auto& span : spans) {
    if (std::string_view(span.what) != "all-gather") continue;
    sum_us += std::max(0.0, span.end_us - std::max(span.start_us, until_us));
    until_us = std::max(until_us, span.end_us);
  }
  return sum_us;
}

/// @param halves whether the two halves of a message are timed separately, which costs events on a
/// GPU
Timing time_idle(StepExchange& exchange, std::size_t messages, bool halves) {
  Timing timing;
  if (halves) exchange.trace_next();
  const double cpu_us = cpu_now_us();
  const double start_us = now_us();
  begin(exchange, messages);
  exchange.flush();
  timing.total_us = now_us() - start_us;
  timing.cpu_us = cpu_now_us() - cpu_us;
  timing.second_us = second_us(exchange);
  return timing;
}

Timing time_busy(GradientExchange& exchange, std::size_t messages, ComputeLoad& load) {
  Timing timing;
  const auto run =
      load.run_while([&] { begin(exchange, messages); }, [&] { return !exchange.idle(); });
  timing.total_us = run.wall_us;
  timing.lost_us = run.lost_us;
  timing.second_us = second_us(exchange);
  return timing;
}

double typical(const std::vector<Timing>& timings, double Timing::*member, std::size_t messages) {
  std::vector<double> values;
  for (const auto& timing : timings) values.push_back(timing.*member);
  return median(values) / static_cast<double>(messages);
}

std::vector<Timing> time_idle_often(StepExchange& exchange, std::size_t messages, bool halves) {
  std::vector<Timing> idle;
  time_idle(exchange, messages, halves);
  for (int i = 0; i < kRepeats; ++i) idle.push_back(time_idle(exchange, messages, halves));
  return idle;
}

/// On a GPU, whose computation costs these cores nothing: busy as idle.
std::vector<double> time_size_on_gpu(StepExchange& exchange, std::size_t messages, bool halves) {
  const auto idle = time_idle_often(exchange, messages, halves);
  const double total_us = typical(idle, &Timing::total_us, messages);
  const double second_us = typical(idle, &Timing::second_us, messages);
  return {total_us, second_us, typical(idle, &Timing::cpu_us, messages), total_us, second_us, 0};
}

/// One worker's figures of one size: idle total, second half, CPU; busy total, second half, loss.
std::vector<double> time_size(GradientExchange& exchange, std::size_t messages, ComputeLoad& load) {
  std::vector<Timing> busy;
  const auto idle = time_idle_often(exchange, messages, /*halves=*/true);
  // Workers leave a message together, so that all of them compute while each learns its pace.
  time_busy(exchange, messages, load);
  load.calibrate(kCalibrationUs);
  for (int i = 0; i < kRepeats; ++i) busy.push_back(time_busy(exchange, messages, load));
  return {typical(idle, &Timing::total_us, messages),  typical(idle, &Timing::second_us, messages),
          typical(idle, &Timing::cpu_us, messages),    typical(busy, &Timing::total_us, messages),
          typical(busy, &Timing::second_us, messages), typical(busy, &Timing::lost_us, messages)};
}

/// What sending takes from the computation is a small difference of long times: a share of the time
/// under way that neighbouring sizes contradict is noise.
void steady_losses(std::vector<CostTable::Point>& lost, const std::vector<CostTable::Point>& first,
                   const std::vector<CostTable::Point>& second) {
  std::vector<double> shares;
  for (std::size_t i = 0; i < lost.size(); ++i) {
    const double under_way_us = first[i].time_us + second[i].time_us;
    shares.push_back(under_way_us > 0 ? lost[i].time_us / under_way_us : 0);
  }
  for (std::size_t i = 0; i < lost.size(); ++i) {
    const std::size_t from =
        std::min(i > 0 ? i - 1 : 0, lost.size() - std::min<std::size_t>(lost.size(), 3));
    const std::size_t to = std::min(from + 3, lost.size());
    const std::vector<double> near(shares.begin() + static_cast<std::ptrdiff_t>(from),
                                   shares.begin() + static_cast<std::ptrdiff_t>(to));
    lost[i].time_us = median(near) * (first[i].time_us + second[i].time_us);
  }
}

/// What packing takes depends on the values: spread as gradients are, a frame's worth repeated, and
/// so small that sums of one size's messages stay finite.
void fill_like_gradients(TrainingWorker& worker, std::size_t count) {
  std::mt19937 random;  // the same on every rank
  std::normal_distribution<float> spread(0, 1e-12F);
  std::vector<float> drawn(std::min<std::size_t>(32768, count));
  for (float& value : drawn) value = spread(random);
  for (std::size_t at = 0; at < count; at += drawn.size())
    worker.memory().from_host(drawn.data(), worker.gradients() + at,
                              std::min(drawn.size(), count - at));
}

ExchangePlan plan_of(const TrainingSpec& spec, std::size_t size, std::size_t messages,
                     GradientPath path) {
  ExchangePlan plan;
  plan.method = spec.method;
  plan.servers = servers_of(spec, 0);
  plan.colocated = spec.placement == ServerPlacement::colocated;
  plan.path = path;
  plan.packing = spec.packing;
  plan.codec = codec_settings(spec);
  plan.server_sgd = server_sgd(spec);
  plan.server_sums = spec.server_sums;
  plan.counts.assign(messages, size);
  // One message at a time is what an all-reduce by urgency does.
  plan.credit_bytes = (plan.servers > 0 ? size * messages : size) * sizeof(float);
  plan.pieces = cut(plan.counts, each_alone(messages), size);
  if (plan.servers > 0) assign_servers(plan.pieces, plan.servers);
  return plan;
}

/// Gradients whose sums stay finite, all of them there.
void clear(TrainingWorker& worker, std::size_t count) {
  worker.memory().clear(worker.gradients(), count);
  worker.memory().mark(kMostTogether);
  worker.memory().complete();
}

/// The gradient with the middle one of a model's bytes: half of them come in gradients as large or
/// larger, which is what methods send at the least.
std::size_t middle_gradient(std::vector<std::size_t> counts) {
  std::sort(counts.begin(), counts.end());
  const std::size_t all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  std::size_t sum = 0;
  for (const std::size_t count : counts)
    if ((sum += count) >= all - all / 2) return count;
  return 0;
}

/// How many lanes every rank may try.
std::size_t lanes_worth_trying(Communicator& comm, int cores) {
  const double fewest = -max_over_ranks(comm, {-static_cast<double>(cores)})[0];
  return most_lanes(comm.size(), static_cast<int>(fewest));
}

/// What a message takes with this codec, besides its size.
std::string coded_key(const TrainingSpec& spec) {
  if (spec.compression == Codec::none) return "";
  const CodecSettings codec = codec_settings(spec);
  return fmt::format(", coded by {} {} {} {} {} {} {} {}", name_of(codec.codec), codec.feedback,
                     codec.density, codec.density_warmup, codec.bits, name_of(codec.layer_bits),
                     codec.rank, codec.threshold);
}

bool depends_on_values(const TrainingSpec& spec) {
  return spec.packing != Packing::none || spec.compression != Codec::none;
}

}  // namespace

bool needs_cost(const TrainingSpec& spec) {
  return spec.compression == Codec::none || leaves_a_choice(spec) ||
         method_row(spec.method).grouping == MessageGrouping::merged;
}

std::string link_key(const TrainingSpec& spec) {
  const std::string packed =
      spec.packing == Packing::none ? "" : fmt::format(", packed by {}", name_of(spec.packing));
  const std::string coded = coded_key(spec);
  const TrainingMethodRow& method = method_row(spec.method);
  if (method.sums == SumPlace::all_reduce && method.order == SendOrder::as_ready)
    return (method.split ? "split all-reduce" : "all-reduce") + packed + coded;
  return fmt::format("{}|{} {} {}|{}|{}{}{}", method.name, spec.servers, name_of(spec.placement),
                     name_of(spec.server_sums), largest_piece(spec), name_of(spec.optimizer),
                     packed, coded);
}

std::vector<TriedPath> try_paths(Communicator& comm, const std::vector<std::size_t>& counts,
                                 TrainingWorker& worker, int cores) {
  const std::size_t all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  constexpr std::size_t kMessages = kMostTogether;
  const std::size_t size = std::min(all / kMessages, middle_gradient(counts));
  TrainingSpec spec;
  spec.method = kOneByOneMethod;
  if (!worker.memory().on_gpu() || size < kLeastPathElements) return {};
  std::vector<TriedPath> tried;
  const auto add = [&](const GradientPath& path) {
    const ExchangePlan plan = plan_of(spec, size, kMessages, path);
    barrier(comm);
    const auto exchange =
        make_exchange(comm, plan, worker.gradients(), worker.sums(), worker.memory());
    const double own_us = typical(time_idle_often(*exchange, kMessages, /*halves=*/false),
                                  &Timing::total_us, kMessages);
    tried.push_back({path, size * sizeof(float), max_over_ranks(comm, {own_us})[0]});
  };
  comm.open_lanes(1);
  clear(worker, all);
  add({});
  if (comm.queue() == nullptr) {
    add({1, true});
    add({1, true, true});
    return tried;
  }
  const std::size_t most = lanes_worth_trying(comm, cores);
  // Where the library cannot open as many, those that it had before stay a choice.
  for (std::size_t lanes = 2; lanes <= most && comm.open_lanes(lanes) == lanes; lanes *= 2) {
    add({lanes, false});
    if (!clearly_wins(tried.back(), tried[tried.size() - 2])) break;
  }
  return tried;
}

LinkCost measure_link(Communicator& comm, const TrainingSpec& spec,
                      const std::vector<std::size_t>& counts, TrainingWorker* worker, int threads,
                      GradientPath path) {
  const std::size_t all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const bool served = servers_of(spec, 0) > 0;
  const int dedicated = dedicated_servers(spec);
  const std::size_t whole = served ? std::max<std::size_t>(all / kPipelined, 1) : all;
  const std::size_t largest = std::min(whole, largest_piece(spec));
  if (worker != nullptr) clear(*worker, all);
  ComputeLoad load(comm.rank() < dedicated ? 1 : threads);
  std::array<std::vector<CostTable::Point>, 6> tables;
  for (const std::size_t size : sizes_up_to(largest, path.lanes)) {
    const std::size_t messages = messages_of(size, all, served, path.lanes);
    const ExchangePlan plan = plan_of(spec, size, messages, path);
    if (worker != nullptr && depends_on_values(spec)) fill_like_gradients(*worker, all);
    barrier(comm);
    std::vector<double> values(tables.size(), 0);
    if (comm.rank() < dedicated) {
      // On idle processors, and on busy ones where those are what computes.
      make_gradient_server(comm, plan)->serve((comm.works_on_gpu() ? 1 : 2) * (1 + kRepeats));
    } else if (comm.works_on_gpu()) {
      const auto exchange =
          make_exchange(comm, plan, worker->gradients(), worker->sums(), worker->memory());
      values = time_size_on_gpu(*exchange, messages, method_row(spec.method).split);
    } else {
      GradientExchange exchange(comm, plan, worker->gradients(), worker->sums());
      values = time_size(exchange, messages, load);
    }
    values = max_over_ranks(comm, std::move(values));
    values[0] -= values[1];
    values[3] -= values[4];
    for (std::size_t i = 0; i < tables.size(); ++i)
      tables[i].push_back({size * sizeof(float), values[i]});
  }
  steady_losses(tables[5], tables[3], tables[4]);
  return {CostTable(tables[0]), CostTable(tables[1]), CostTable(tables[2]),
          CostTable(tables[3]), CostTable(tables[4]), CostTable(tables[5])};
}

}  // namespace dynamiccl
