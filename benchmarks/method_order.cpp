// Do the models put seven training methods in the order that a survey measured on 32 GPUs? Prints
// its speed-ups over one GPU next to those that predict_step() expects on the machine's file, with
// the rank correlation of the two (Spearman's).
//
//   method_order [MACHINE]                        rtx2080ti-8x4
//
// One GPU's samples per second are the survey's own, a third of a step is the forward pass, layers
// of a kind take as long. A message of the methods without servers takes what the ring model says
// of all ranks. Those of servers are summed in the node first, then shared by as many servers as
// there are nodes, as in the survey.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/launch/identity.hpp"
#include "profiles/machine_model_file.hpp"
#include "reports/model/published.hpp"
#include "train/plan/exchange_plan.hpp"
#include "tuner/simulator/machine_cost.hpp"

using namespace dynamiccl;

namespace {

/// Parameters of each tensor in the order of the forward pass, layer by layer.
using Layers = std::vector<std::vector<std::size_t>>;

Layers resnet50_layers() {
  Layers layers{{3UL * 64 * 49, 64, 64}};
  std::size_t from = 64;
  const std::vector<std::size_t> blocks{3, 4, 6, 3};
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    const std::size_t width = 64UL << stage;
    for (std::size_t block = 0; block < blocks[stage]; ++block) {
      layers.push_back({from * width, width, width});
      layers.push_back({width * width * 9, width, width});
      layers.push_back({width * width * 4, width * 4, width * 4});
      if (block == 0)
        layers.back().insert(layers.back().end(), {from * width * 4, width * 4, width * 4});
      from = width * 4;
    }
  }
  layers.push_back({2048UL * 1000, 1000});
  return layers;
}

Layers bert_layers(std::size_t count, std::size_t hidden) {
  const std::size_t square = hidden * hidden;
  Layers layers{{30522 * hidden, 512 * hidden, 2 * hidden, hidden, hidden}};
  for (std::size_t i = 0; i < count; ++i) {
    layers.push_back(
        {square, hidden, square, hidden, square, hidden, square, hidden, hidden, hidden});
    layers.push_back({4 * square, 4 * hidden, 4 * square, hidden, hidden, hidden});
  }
  layers.push_back({square, hidden});
  return layers;
}

StepProfile profile_of(const Layers& layers, double step_us) {
  StepProfile profile;
  profile.forward_us = step_us / 3;
  profile.backward_us = step_us - profile.forward_us;
  const auto count = static_cast<double>(layers.size());
  profile.stage_forward_us.assign(layers.size(), profile.forward_us / count);
  for (std::size_t done = 1; done <= layers.size(); ++done) {
    const std::size_t layer = layers.size() - done;
    for (auto tensor = layers[layer].rbegin(); tensor != layers[layer].rend(); ++tensor) {
      profile.gradients.push_back(
          {profile.backward_us * static_cast<double>(done) / count, *tensor * sizeof(float)});
      profile.stage_of_gradient.push_back(static_cast<int>(layer));
    }
  }
  return profile;
}

double named_time(const MachineModel& machine, Collective collective, int ranks, double bytes,
                  const std::string& algorithm) {
  for (const PredictedTime& time : predict_collective(machine, collective, ranks, bytes))
    if (time.algorithm == algorithm) return time.us;
  throw Error(ErrorKind::input, "no model of " + algorithm);
}

/// What a message takes, summed by all or by servers.
double message_us(const MachineModel& machine, bool served, double bytes) {
  if (!served) return named_time(machine, Collective::allreduce, machine.ranks(), bytes, "ring");
  const int local = machine.ranks_per_node;
  const LinkClass& link = machine.link(LinkTier::network).at(bytes / machine.nodes);
  // To the servers and back, each node's port both ways at once.
  return named_time(machine, Collective::reduce_scatter, local, bytes, "own_ring") +
         named_time(machine, Collective::allgather, local, bytes, "ring") +
         2 * (link.latency_us + bytes * (machine.nodes - 1) / machine.nodes / link.bytes_per_us);
}

LinkCost cost_of(const MachineModel& machine, bool served) {
  std::vector<CostTable::Point> points;
  for (std::size_t bytes = 256; bytes <= std::size_t{2} << 30; bytes *= 4)
    points.push_back({bytes, message_us(machine, served, static_cast<double>(bytes))});
  LinkCost cost;
  cost.time = CostTable(points);
  return cost;
}

double best_step_us(TrainingMethod method, const StepProfile& profile,
                    const MachineModel& machine) {
  const bool served = method_row(method).sums == SumPlace::server;
  const LinkCost link = cost_of(machine, served);
  TrainingSpec spec;
  spec.method = method;
  if (served) spec.servers = machine.nodes;
  double best = 0;
  for (const ExchangePlan& plan : possible_plans(spec, profile, link, false)) {
    const double us = predict_step(plan, profile, link).step_us;
    if (best == 0 || us < best) best = us;
  }
  return best;
}

std::vector<double> ranks_in(const std::vector<double>& values) {
  std::vector<double> ranks;
  for (const double value : values) {
    double rank = 0.5;
    for (const double other : values) rank += other < value ? 1 : other == value ? 0.5 : 0;
    ranks.push_back(rank);
  }
  return ranks;
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto x = ranks_in(a);
  const auto y = ranks_in(b);
  const double mean = (static_cast<double>(x.size()) + 1) / 2;
  double xy = 0;
  double xx = 0;
  double yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xy / std::sqrt(xx * yy);
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

void print_model(const std::string& model, const Layers& layers, const MachineModel& machine) {
  const auto& table = published_figures().at("ddl_benchmarks").at("speedup");
  const double single_us = table.at("local_batch").at(model).get<double>() /
                           table.at("one_gpu_samples_per_s").at(model).get<double>() * 1e6;
  const StepProfile profile = profile_of(layers, single_us);
  std::size_t parameters = 0;
  for (const Gradient& gradient : profile.gradients) parameters += gradient.bytes / sizeof(float);
  fmt::print(
      "\n## {}: {:.1f} M parameters, {:.0f} ms alone\n\n| method | published | expected |\n"
      "|---|---|---|\n",
      model, static_cast<double>(parameters) / 1e6, single_us / 1e3);
  std::vector<double> published;
  std::vector<double> expected;
  for (const auto& row : table.at("rows")) {
    if (row.at("link") != "100Gb-IB-RDMA" || row.at("model") != model) continue;
    const auto method = parse_named<TrainingMethod>(lower(row.at("method").get<std::string>()));
    published.push_back(row.at("gpus32").get<double>());
    expected.push_back(machine.ranks() * single_us / best_step_us(method, profile, machine));
    fmt::print("| {} | {:.2f} | {:.2f} |\n", name_of(method), published.back(), expected.back());
  }
  fmt::print("\nrank correlation {:.2f}\n", rank_correlation(published, expected));
}

}  // namespace

int main(int argc, char** argv) try {
  const MachineModel machine =
      read_machine_model(argc > 1 ? argv[1] : "rtx2080ti-8x4", data_path("profiles/machines"));
  fmt::print("# Seven methods on {} ({})\n", machine.name, machine.description);
  print_model("ResNet-50", resnet50_layers(), machine);
  print_model("BERT-Base", bert_layers(12, 768), machine);
  print_model("BERT-Large", bert_layers(24, 1024), machine);
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
