#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <random>
#include <set>

#include "train/plan/exchange_plan.hpp"
#include "train/plan/merge.hpp"
#include "train/plan/partition.hpp"
#include "train/plan/predict.hpp"

using namespace dynamiccl;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

std::vector<Gradient> random_net(std::mt19937& random, std::size_t most) {
  std::uniform_int_distribution<std::size_t> layers(1, most);
  std::uniform_real_distribution<double> gap(0, 10);
  std::uniform_int_distribution<std::size_t> bytes(1, 10);
  std::vector<Gradient> net(layers(random));
  double ready = 0;
  for (auto& gradient : net) {
    ready += gap(random);
    gradient = {ready, bytes(random)};
  }
  return net;
}

/// When the last group has arrived: groups travel one after the other, each once its last gradient
/// is ready.
double finish_us(const std::vector<Gradient>& net, const std::vector<Group>& groups,
                 const Cost& cost) {
  double end = 0;
  for (const auto& group : groups) {
    if (group.first == group.last) continue;
    std::size_t bytes = 0;
    for (std::size_t i = group.first; i < group.last; ++i) bytes += net[i].bytes;
    end = std::max(end, net[group.last - 1].ready_us) + cost(bytes);
  }
  return end;
}

struct Merge {
  double finish_us;
  std::size_t groups;
};

/// The best of all 2^(L-1) ways to group neighbours, and of those the one with the fewest groups.
Merge brute_force(const std::vector<Gradient>& net, const Cost& cost) {
  Merge best{1e300, 0};
  for (unsigned cuts = 0; cuts < 1U << (net.size() - 1); ++cuts) {
    std::vector<Group> groups;
    std::size_t first = 0;
    for (std::size_t i = 1; i <= net.size(); ++i) {
      if (i == net.size() || (cuts >> (i - 1) & 1U) != 0) {
        groups.push_back({first, i});
        first = i;
      }
    }
    const Merge merge{finish_us(net, groups, cost), groups.size()};
    if (std::pair(merge.finish_us, merge.groups) < std::pair(best.finish_us, best.groups))
      best = merge;
  }
  return best;
}

bool covers_once(const std::vector<Group>& groups, std::size_t count) {
  std::size_t next = 0;
  for (const auto& group : groups) {
    if (group.first != next || group.last <= group.first) return false;
    next = group.last;
  }
  return next == count;
}

}  // namespace

TEST_CASE("the exact merge equals brute force on 1000 random nets, with the fewest messages",
          "[d-48]") {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> number(0, 8);
  int greedy_worse = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto net = random_net(random, 11);
    const double alpha = number(random);
    const double beta = number(random) / 4;
    // Every third cost jumps, as protocols do: the program needs no straight line.
    const double jump = i % 3 == 0 ? number(random) : 0;
    const Cost cost = [=](std::size_t bytes) {
      return alpha + beta * static_cast<double>(bytes) + (bytes > 12 ? jump : 0);
    };
    const auto groups = optimal_merge(net, cost);
    REQUIRE(covers_once(groups, net.size()));
    const double best = finish_us(net, groups, cost);
    const Merge expected = brute_force(net, cost);
    REQUIRE(best == expected.finish_us);
    REQUIRE(groups.size() == expected.groups);
    const auto greedy = greedy_merge(net, cost, alpha);
    REQUIRE(covers_once(greedy, net.size()));
    REQUIRE(best <= finish_us(net, greedy, cost) + 1e-9);
    greedy_worse += finish_us(net, greedy, cost) > best + 1e-9 ? 1 : 0;
    REQUIRE(best <= finish_us(net, each_alone(net.size()), cost) + 1e-9);
    REQUIRE(best <= finish_us(net, all_together(net.size()), cost) + 1e-9);
  }
  CHECK(greedy_worse > 50);
}

TEST_CASE("the published rule is not optimal where it is known not to be") {
  // alpha 4, beta 1: sizes 4, 0.5, 0.5 ready at 1, 4, 8; halves are doubled to stay whole.
  const std::vector<Gradient> net{{1, 8}, {4, 1}, {8, 1}};
  const Cost cost = [](std::size_t bytes) { return 4 + 0.5 * static_cast<double>(bytes); };
  CHECK(finish_us(net, greedy_merge(net, cost, 4), cost) == 17);
  CHECK(finish_us(net, optimal_merge(net, cost), cost) == 14);
}

TEST_CASE("groups up to a size keep to it where one gradient allows") {
  const std::vector<Gradient> net{{0, 5}, {0, 5}, {0, 20}, {0, 1}, {0, 9}};
  CHECK(up_to(net, 10) == std::vector<Group>{{0, 2}, {2, 3}, {3, 5}});
  CHECK(up_to({}, 10).empty());
}

TEST_CASE("a partition never loses or doubles an element", "[d-49]") {
  std::mt19937 random(11);
  std::uniform_int_distribution<std::size_t> size(1, 5000);
  for (int i = 0; i < 1000; ++i) {
    std::vector<std::size_t> counts(size(random) % 40 + 1);
    std::vector<Gradient> net;
    for (auto& count : counts) {
      count = size(random);
      net.push_back({0, count * sizeof(float)});
    }
    const std::size_t most = size(random);
    auto pieces = cut(counts, up_to(net, size(random) * sizeof(float)), most);
    std::size_t next = 0;
    for (const auto& piece : pieces) {
      REQUIRE(piece.offset == next);
      REQUIRE(piece.count > 0);
      REQUIRE(piece.count <= most);
      next += piece.count;
      // It touches exactly the gradients that share an element with it.
      std::size_t begin = 0;
      for (std::size_t g = 0; g < counts.size(); begin += counts[g++]) {
        const bool shares = begin < piece.offset + piece.count && piece.offset < begin + counts[g];
        REQUIRE(shares == (g >= piece.first && g < piece.last));
      }
    }
    std::size_t all = 0;
    for (const auto count : counts) all += count;
    REQUIRE(next == all);
    const int servers = 1 + i % 4;
    assign_servers(pieces, servers);
    std::vector<std::size_t> load(static_cast<std::size_t>(servers), 0);
    std::size_t largest = 0;
    for (const auto& piece : pieces) {
      load[static_cast<std::size_t>(piece.server)] += piece.count;
      largest = std::max(largest, piece.count);
    }
    for (const auto l : load) REQUIRE(l <= all / static_cast<std::size_t>(servers) + largest);
  }
}

TEST_CASE("the most urgent pieces start first, within the credit", "[d-50]") {
  const auto pieces = cut({100, 100, 100}, each_alone(3), 50);
  std::vector<std::size_t> waiting{0, 1, 4, 2};
  CHECK(take_urgent(pieces, waiting, 400) == std::vector<std::size_t>{4, 2});
  CHECK(waiting == std::vector<std::size_t>{1, 0});
  // A piece larger than the credit still moves.
  CHECK(take_urgent(pieces, waiting, 1) == std::vector<std::size_t>{1});
  CHECK(take_urgent(pieces, waiting, 1000) == std::vector<std::size_t>{0});
  CHECK(take_urgent(pieces, waiting, 1000).empty());
}

TEST_CASE("measured costs are read off straight lines between sizes") {
  const CostTable table({{1000, 20}, {100, 10}, {2000, 15}});
  CHECK(table(50) == 10);
  CHECK(table(550) == 15);
  CHECK(table(1500) == 20);  // a larger message is never cheaper
  CHECK(table(0) == 0);
  CHECK(CostTable()(5) == 0);
  CHECK_THAT(CostTable({{100, 10}, {200, 30}})(300), WithinRel(50.0, 1e-12));
}

TEST_CASE("DDP's buckets close with the gradient that fills them, the first one early") {
  const std::vector<Gradient> net{{0, 4}, {1, 8}, {2, 5}, {3, 30}, {4, 1}, {5, 2}};
  CHECK(filled(net, 10, 20) == std::vector<Group>{{0, 2}, {2, 4}, {4, 6}});
  CHECK(filled(net, 1, 1) == each_alone(net.size()));
  CHECK(filled(net, 1000, 1000) == all_together(net.size()));
  CHECK(filled({}, 1, 1).empty());
}

TEST_CASE("predicted steps follow the methods' formulas") {
  StepProfile profile;
  profile.forward_us = 30;
  profile.backward_us = 60;
  profile.update_us = 3;
  profile.stage_forward_us = {10, 10, 10};
  profile.gradients = {{20, 400}, {40, 400}, {60, 400}};
  profile.stage_of_gradient = {2, 1, 0};
  const std::vector<std::size_t> counts{100, 100, 100};
  LinkCost link;
  link.time = CostTable({{400, 10}, {1200, 30}});
  const auto alone = cut(counts, each_alone(3), 1000);
  const auto whole = cut(counts, all_together(3), 1000);
  const auto step = [&](TrainingMethod method, const std::vector<Piece>& pieces) {
    return predict_step(method, profile, pieces, link, 1000);
  };
  CHECK_THAT(step(TrainingMethod::bsp_a2a, whole).step_us, WithinRel(30.0 + 60 + 30 + 3, 1e-9));
  // What arrived early is applied while the last message is under way.
  CHECK_THAT(step(TrainingMethod::wfbp_a2a, alone).step_us, WithinRel(30.0 + 60 + 10 + 1, 1e-9));
  CHECK_THAT(step(TrainingMethod::wfbp_a2a, alone).exposed_us, WithinRel(8.0, 1e-9));
  CHECK_THAT(step(TrainingMethod::wfbp_a2a, alone).computing_us, WithinRel(93.0, 1e-9));
  CHECK_THAT(step(TrainingMethod::wfbp_a2a, alone).sending_us, WithinRel(30.0, 1e-9));
  // The last message overlaps nothing of stage 0, which needs it.
  CHECK_THAT(step(TrainingMethod::bytescheduler_a2a, alone).step_us, WithinRel(103.0, 1e-9));
  // One server round after the whole backward pass, or each as its gradient is ready.
  CHECK_THAT(step(TrainingMethod::bsp_ps, alone).step_us, WithinRel(30.0 + 60 + 30 + 1, 1e-9));
  CHECK_THAT(step(TrainingMethod::wfbp_ps, alone).step_us, WithinRel(30.0 + 60 + 10 + 1, 1e-9));
  link.time = CostTable({{400, 50}, {1200, 150}});
  // Bound by the link: three messages per step.
  CHECK(step(TrainingMethod::bytescheduler_a2a, alone).step_us >= 150);
  CHECK(step(TrainingMethod::bytescheduler_a2a, alone).step_us <
        step(TrainingMethod::wfbp_a2a, alone).step_us);
}

TEST_CASE("the transport's own computing costs where both overlap, and nowhere else", "[a-13]") {
  StepProfile profile;
  profile.forward_us = 30;
  profile.backward_us = 60;
  profile.stage_forward_us = {30};
  profile.gradients = {{20, 400}, {60, 400}};
  profile.stage_of_gradient = {0, 0};
  const std::vector<std::size_t> counts{100, 100};
  LinkCost link;
  link.time = CostTable({{400, 10}, {800, 20}});
  // While a worker computes a message takes 16 us and costs half of that in computation.
  link.busy_time = CostTable({{400, 16}, {800, 32}});
  link.lost = CostTable({{400, 8}, {800, 16}});
  const auto step = [&](TrainingMethod method, const std::vector<Piece>& pieces) {
    return predict_step(method, profile, pieces, link, 1000);
  };
  // All is sent after the backward pass, on idle processors.
  const auto whole = cut(counts, all_together(2), 1000);
  CHECK_THAT(step(TrainingMethod::bsp_a2a, whole).step_us, WithinRel(90.0 + 20, 1e-9));
  // The first message lies within the backward pass and takes 8 us from it; the last lies behind.
  const auto alone = cut(counts, each_alone(2), 1000);
  const auto wfbp = step(TrainingMethod::wfbp_a2a, alone);
  CHECK_THAT(wfbp.step_us, WithinRel(90.0 + 8 + 10, 1e-9));
  CHECK_THAT(wfbp.computing_us, WithinRel(98.0, 1e-9));
  CHECK_THAT(wfbp.exposed_us, WithinRel(10.0, 1e-9));
  // A message that is half sent when computation ends goes on at its own pace.
  profile.gradients[0].ready_us = 56;
  // 4 us of computation are left: 8 us at half pace, half of the message; 5 us for the rest, then
  // 10 for the last.
  CHECK_THAT(step(TrainingMethod::wfbp_a2a, alone).step_us, WithinRel(90.0 + 4 + 5 + 10, 1e-9));
}

TEST_CASE("a split all-reduce hides its second half behind the next forward pass", "[dear]") {
  StepProfile profile;
  profile.forward_us = 40;
  profile.backward_us = 60;
  profile.stage_forward_us = {20, 20};
  profile.gradients = {{30, 400}, {60, 400}};
  profile.stage_of_gradient = {1, 0};
  LinkCost link;
  link.time = CostTable({{400, 10}});
  link.second = CostTable({{400, 10}});
  const auto pieces = cut({100, 100}, each_alone(2), 1000);
  // Stage 0 waits for the second reduce-scatter and its own all-gather; stage 1's is hidden.
  const auto step = predict_step(TrainingMethod::dear, profile, pieces, link, 0);
  CHECK_THAT(step.step_us, WithinRel(100.0 + 20, 1e-9));
  CHECK_THAT(step.exposed_us, WithinRel(20.0, 1e-9));
}

TEST_CASE("what is left open is chosen among plans that differ", "[d-49][dear]") {
  // Twenty equal stages; a link whose messages cost next to nothing to start.
  constexpr std::size_t kStages = 20;
  constexpr std::size_t kBytes = 1U << 20;
  StepProfile profile;
  profile.forward_us = 40'000;
  profile.backward_us = 80'000;
  profile.stage_forward_us.assign(kStages, 2'000);
  for (std::size_t i = 0; i < kStages; ++i) {
    profile.gradients.push_back({4'000.0 * static_cast<double>(i + 1), kBytes});
    profile.stage_of_gradient.push_back(static_cast<int>(kStages - 1 - i));
  }
  LinkCost link;
  link.time = CostTable({{1024, 12}, {kStages * kBytes, 60'000}});
  link.second = link.time;
  const auto shortest = [&](const std::vector<ExchangePlan>& plans) {
    std::vector<double> steps;
    for (const auto& plan : plans) steps.push_back(predict_step(plan, profile, link).step_us);
    return *std::min_element(steps.begin(), steps.end());
  };
  TrainingSpec spec;
  spec.method = TrainingMethod::dear;
  const auto open = possible_plans(spec, profile, link, false);
  spec.bucket = Bytes(25U << 20);
  const auto usual = possible_plans(spec, profile, link, false);
  REQUIRE(usual.size() == 1);
  // Groups of 25 MiB are one message of all 20.
  CHECK(open.back().pieces.size() == usual[0].pieces.size());
  CHECK(shortest(open) < shortest(usual));
  std::set<std::size_t> messages;
  for (const auto& plan : open) messages.insert(plan.pieces.size());
  CHECK(messages.size() == open.size());
  spec.method = TrainingMethod::bytescheduler_a2a;
  const auto open_parts = possible_plans(spec, profile, link, false);
  for (const auto& plan : open_parts)
    for (const auto& piece : plan.pieces) CHECK(piece.count * sizeof(float) <= plan.credit_bytes);
  spec.partition = Bytes(4U << 20);
  spec.credit = Bytes(16U << 20);
  const auto usual_parts = possible_plans(spec, profile, link, false);
  REQUIRE(usual_parts.size() == 1);
  CHECK(usual_parts[0].credit_bytes == 16U << 20);
  CHECK(shortest(open_parts) <= shortest(usual_parts));
  // Two merges, by idle and by busy costs; alike they are one.
  spec.method = TrainingMethod::mg_wfbp;
  link.busy_time = link.time;
  CHECK(possible_plans(spec, profile, link, false).size() == 1);
  link.busy_time = CostTable({{1024, 20'000}, {kStages * kBytes, 80'000}});
  const auto merges = possible_plans(spec, profile, link, false);
  REQUIRE(merges.size() == 2);
  CHECK(merges[1].pieces.size() < merges[0].pieces.size());
  // What is said stays.
  spec.method = TrainingMethod::bytescheduler_a2a;
  spec.partition = Bytes(1U << 18);
  const auto said = possible_plans(spec, profile, link, false);
  REQUIRE(said.size() == 1);
  for (const auto& piece : said[0].pieces) CHECK(piece.count * sizeof(float) <= 1U << 18);
}

TEST_CASE("an idle link gets no more messages than the last one's time asks for", "[d-48]") {
  // Sent one by one all but the last travel behind the backward pass; so they do in two.
  const std::vector<Gradient> net{{10, 1}, {20, 1}, {30, 1}, {40, 1}, {50, 1}};
  const Cost cost = [](std::size_t bytes) { return 1.0 + static_cast<double>(bytes); };
  const auto groups = optimal_merge(net, cost);
  CHECK(finish_us(net, groups, cost) == finish_us(net, each_alone(5), cost));
  CHECK(groups == std::vector<Group>{{0, 4}, {4, 5}});
  CHECK(optimal_merge({}, cost).empty());
}

TEST_CASE("on GPUs merges of fewer messages are worth a trial", "[d-48]") {
  constexpr std::size_t kLayers = 200;
  StepProfile profile;
  profile.forward_us = 20'000;
  profile.backward_us = 40'000;
  profile.stage_forward_us = {20'000};
  profile.stage_of_gradient.assign(kLayers, 0);
  for (std::size_t i = 0; i < kLayers; ++i)
    profile.gradients.push_back({200.0 * static_cast<double>(i + 1), std::size_t{1} << 20});
  LinkCost link;
  // Three messages of one gradient in the time between two.
  link.time = CostTable({{1024, 20}, {kLayers << 20, 10'000}});
  link.busy_time = link.time;
  TrainingSpec spec;
  spec.method = TrainingMethod::mg_wfbp;
  CHECK(possible_plans(spec, profile, link, false).size() == 1);
  const auto plans = possible_plans(spec, profile, link, true);
  std::set<std::size_t> messages;
  std::vector<Expectation> expected;
  for (const auto& plan : plans) {
    CHECK(plan.elements() == plans.front().elements());
    messages.insert(plan.pieces.size());
    expected.push_back(expected_step(plan, profile, link, true));
    CHECK(expected.back().least_us == predict_step(plan, profile, link).step_us);
  }
  CHECK(*messages.begin() == 1);
  for (const std::size_t usual : {4, 8, 25, 50}) CHECK(messages.count(kLayers / usual) == 1);
  CHECK(plans.size() >= 7);
  // Those of 50 messages are expected to be faster than the one of all, but may take 7.5 ms more.
  std::vector<std::size_t> trained;
  static_cast<void>(choose_by_trial(expected, 1e12, [&](std::size_t candidate, int steps) {
    trained.push_back(candidate);
    return std::vector<double>(static_cast<std::size_t>(steps), 1.0);
  }));
  CHECK(std::set<std::size_t>(trained.begin(), trained.end()).size() == plans.size());
  // The published rule and everyone's own are what they are.
  spec.merge = MergeRule::greedy;
  CHECK(possible_plans(spec, profile, link, true).size() == 1);
  spec.method = TrainingMethod::wfbp_a2a;
  CHECK(possible_plans(spec, profile, link, true).size() == 1);
}

TEST_CASE("a path other than the plainest is taken where it saves a fifth", "[d-40]") {
  const auto chosen = [](const std::vector<double>& lanes_us) {
    std::vector<TriedPath> tried;
    for (const double us : lanes_us) tried.push_back({{tried.size() + 1, false}, 4, us});
    return choose_path(tried).lanes;
  };
  CHECK(chosen({}) == 1);
  CHECK(chosen({100}) == 1);
  CHECK(chosen({100, 81}) == 1);
  CHECK(chosen({100, 79}) == 2);
  CHECK(chosen({100, 79, 70}) == 2);
  CHECK(chosen({100, 79, 60}) == 3);
  CHECK(chosen({100, 200, 300}) == 1);
  CHECK(choose_path({{{1, false}, 4, 100}, {{1, true}, 4, 70}}).by_host);
  CHECK_FALSE(choose_path({{{1, false}, 4, 100}, {{1, true}, 4, 90}}).by_host);
  // Of two ways by host memory the library's, unless the ring of our own saves a fifth again.
  const auto rings = [](double library_us, double own_us) {
    return choose_path(
        {{{1, false}, 4, 100}, {{1, true}, 4, library_us}, {{1, true, true}, 4, own_us}});
  };
  CHECK(rings(70, 50).own_ring);
  CHECK_FALSE(rings(70, 60).own_ring);
  CHECK(rings(90, 60).own_ring);
  CHECK(rings(90, 60).by_host);
}
