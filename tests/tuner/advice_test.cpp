// What the sources advise, as terms of the belief: each term moves what it speaks of and nothing
// else.
#include "tuner/agents/advice.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <set>

#include "tuner/action/spaces.hpp"
#include "tuner/agents/bandit.hpp"
#include "tuner/agents/narrowing.hpp"
#include "tuner/state/published_scaling.hpp"
#include "tuner/state/state_from_regime.hpp"
#include "tuner/state/state_from_training.hpp"

using namespace dynamiccl;

namespace {

Task nccl_task(std::uint64_t bytes, int ranks = 4) {
  SpaceContext context{.backend = Backend::nccl,
                       .collective = Collective::allreduce,
                       .ranks = ranks,
                       .nvlink = true,
                       .peer_to_peer = true,
                       .nccl_plugin = true};
  SpaceOptions options;
  options.scopes = {KnobScope::call};
  Task task;
  task.space = std::make_shared<const ActionSpace>(make_space(context, options));
  task.key = {"a",
              {.collective = Collective::allreduce,
               .bin = SizeBin::of(Bytes{bytes}),
               .group_size = ranks,
               .backend = Backend::nccl}};
  set_task(task.state, task.key.task, Bytes{bytes}, Bytes{bytes});
  return task;
}

const Hint& hint(std::string_view name) {
  for (const Hint& one : hints())
    if (one.name == name) return one;
  throw std::runtime_error("no hint " + std::string(name));
}

const Boldness& boldness(std::string_view name) {
  for (const Boldness& one : boldness_terms())
    if (one.name == name) return one;
  throw std::runtime_error("no term " + std::string(name));
}

constexpr ArmTraits kTreeLl{ArmTraits::Shape::tree, ArmTraits::Protocol::low_latency, 0};
constexpr ArmTraits kRingSimple{ArmTraits::Shape::ring, ArmTraits::Protocol::simple, 0};
constexpr ArmTraits kFew{ArmTraits::Shape::unsaid, ArmTraits::Protocol::unsaid, -1};
constexpr ArmTraits kMany{ArmTraits::Shape::unsaid, ArmTraits::Protocol::unsaid, 1};
constexpr ArmTraits kTwoLevels{ArmTraits::Shape::hierarchical, ArmTraits::Protocol::unsaid, 0};

/// The hint holds for the task and prefers `better`; for `other` it does not hold.
void prefers(std::string_view name, const Task& task, const ArmTraits& better,
             const ArmTraits& worse, const Task& other) {
  INFO(name);
  CHECK(hint(name).applies(task) > 0);
  CHECK(hint(name).judges(better, task) < hint(name).judges(worse, task));
  CHECK(hint(name).applies(other) == 0);
}

void applies_to(std::string_view name, const Task& task, const Task& other, bool bolder) {
  INFO(name);
  CHECK(boldness(name).applies(task));
  CHECK(!boldness(name).applies(other));
  CHECK((boldness(name).factor > 1) == bolder);
  CHECK((boldness_of(task) > boldness_of(other)) == bolder);
}

template <class Change>
Task changed(Task task, Change&& change) {
  change(task);
  return task;
}

}  // namespace

TEST_CASE("an arm's traits are read whatever its knobs are called") {
  const Task task = nccl_task(1 << 20);
  std::set<double> channels;
  bool tree_ll = false;
  for (const Action& action : task.space->arms()) {
    const ArmTraits traits = traits_of(*task.space, action, 4);
    if (traits.channels != 0) channels.insert(traits.channels);
    tree_ll = tree_ll || (traits.shape == ArmTraits::Shape::tree &&
                          traits.protocol == ArmTraits::Protocol::low_latency);
  }
  CHECK(tree_ll);
  CHECK(*channels.begin() < -0.6);  // 1 of 4
  CHECK(*channels.rbegin() == 1);
  const ActionSpace grid(
      "grid",
      {{.name = "env.NCCL_ALGO",
        .role = KnobRole::implementation,
        .target = "",
        .values = {"default", "ring"}},
       {.name = "env.NCCL_PROTO",
        .role = KnobRole::implementation,
        .target = "",
        .values = {"default", "LL"}},
       {.name = "env.NCCL_MIN_CTAS", .target = "", .values = {"default", "1", "8"}}},
      [](const ActionSpace&, const Action&) { return true; });
  const ArmTraits named = traits_of(grid, {1, 1, 2}, 4);
  CHECK(named.shape == ArmTraits::Shape::ring);
  CHECK(named.protocol == ArmTraits::Protocol::low_latency);
  CHECK(named.channels == 1.0 / 3);  // 8 of 4
}

TEST_CASE("hints hold where their source says and prefer what it advises",
          "[E-171][E-172][E-173][E-174][E-175][E-176][E-177][E-178][E-179][E-164]") {
  const Task small = nccl_task(16 << 10);
  const Task large = nccl_task(64 << 20);
  const Task middle = nccl_task(1 << 18);
  const auto scheduled = [](Task task, Schedule schedule) {
    task.state.schedule = schedule;
    return task;
  };
  prefers("wfbp", scheduled(small, Schedule::wfbp), kTreeLl, kRingSimple,
          scheduled(small, Schedule::none));
  prefers("fused", scheduled(large, Schedule::mg_wfbp), kRingSimple, kTreeLl,
          scheduled(small, Schedule::mg_wfbp));
  prefers("fused", scheduled(large, Schedule::mg_wfbp), kFew, kMany,
          scheduled(large, Schedule::wfbp));
  prefers("partitioned", scheduled(middle, Schedule::partitioned), kMany, kFew,
          scheduled(small, Schedule::partitioned));
  const auto parallel = [&](ParallelismMode mode) {
    return changed(middle, [&](Task& task) { task.state.parallelism = mode; });
  };
  prefers("parallelism", parallel(ParallelismMode::tp), kTreeLl, kRingSimple,
          parallel(ParallelismMode::dp));
  prefers("parallelism", parallel(ParallelismMode::pp), kRingSimple, kTreeLl, middle);
  prefers("parallelism", parallel(ParallelismMode::three_d), kTreeLl, kRingSimple, middle);
  prefers("parallelism",
          changed(parallel(ParallelismMode::three_d),
                  [](Task& task) { task.key.task.collective = Collective::reduce_scatter; }),
          kRingSimple, kTreeLl, middle);
  prefers("start-up wall", nccl_task(16 << 10, 16), kTreeLl, kRingSimple, small);
  prefers("start-up wall", nccl_task(16 << 10, 16), kMany, kFew, nccl_task(1 << 30, 16));
  const auto critical = [&](bool is) {
    return changed(middle, [&](Task& task) { task.state.critical = is; });
  };
  prefers("critical", critical(true), kTreeLl, kRingSimple, middle);
  prefers("critical", critical(false), kRingSimple, kTreeLl, middle);
  prefers("size", small, kTreeLl, kRingSimple, middle);
  prefers("size", large, kRingSimple, kTreeLl, middle);
  const auto on = [&](Topology topology) {
    return changed(middle, [&](Task& task) { task.state.topology = topology; });
  };
  prefers("topology", on(Topology::torus), kRingSimple, kTreeLl, middle);
  prefers("topology", on(Topology::jellyfish), kRingSimple, kTwoLevels, middle);
  prefers("topology", on(Topology::fat_tree), kTreeLl, kTwoLevels, middle);
  prefers("topology", on(Topology::bcube), kTwoLevels, kRingSimple, middle);
  prefers("topology", on(Topology::hammingmesh), kTwoLevels, kTreeLl, middle);
  prefers("protocol", small, kTreeLl, kRingSimple, middle);
  prefers("protocol", large, kRingSimple, kTreeLl, middle);
  const auto apart = [](Task task) {
    task.state.cross_container = true;
    return task;
  };
  prefers("containers", apart(small), kFew, kMany, small);
  CHECK(hint("containers").applies(apart(large)) == 0);
}

TEST_CASE("boldness: where it pays to search and where defaults do",
          "[E-151][E-152][E-153][E-154][E-156][E-157][E-158][E-159][E-160][E-163][E-180]") {
  const Task middle = nccl_task(1 << 18);
  const double high = 2 * published_intensity_split();
  const double low = published_intensity_split() / 2;
  const auto model = [](double intensity, int ranks, int batch) {
    Task task = nccl_task(1 << 18, ranks);
    task.state.model_intensity = intensity;
    task.state.local_batch = batch;
    return task;
  };
  applies_to("scaling", model(high, 32, 64), model(high, 16, 64), false);
  applies_to("small batch", model(low, 8, 8), model(high, 8, 8), true);
  const auto infiniband = [](std::uint64_t bytes) {
    Task task = nccl_task(bytes);
    task.key.task.nodes = 2;
    task.state.inter_link = InterLink::infiniband;
    return task;
  };
  applies_to("infiniband", infiniband(4 << 20), infiniband(1 << 18), false);
  const auto scheduled = [](Schedule schedule, int ranks) {
    Task task = nccl_task(1 << 18, ranks);
    task.state.schedule = schedule;
    task.state.sync = SyncMode::bsp;
    return task;
  };
  applies_to("unscheduled", scheduled(Schedule::none, 4), scheduled(Schedule::wfbp, 4), false);
  applies_to("many wfbp ranks", scheduled(Schedule::wfbp, 32), scheduled(Schedule::wfbp, 4), true);
  applies_to("one gibibyte", nccl_task(1 << 30, 4), nccl_task(1 << 30, 8), false);
  applies_to("small messages", nccl_task(16 << 10), middle, true);
  applies_to("pcie", changed(middle, [](Task& task) { task.state.intra_link = IntraLink::pcie; }),
             changed(middle, [](Task& task) { task.state.intra_link = IntraLink::nvlink; }), true);
  applies_to("containers", changed(middle, [](Task& task) { task.state.cross_container = true; }),
             changed(middle, [](Task& task) { task.state.cross_container = false; }), true);
  applies_to("away from home",
             changed(middle, [](Task& task) { task.state.compression = Compression::top_k; }),
             changed(middle, [](Task& task) { task.state.compression = Compression::none; }),
             false);
  applies_to("away from home",
             changed(middle, [](Task& task) { task.state.sync = SyncMode::local_sgd; }),
             changed(middle, [](Task& task) { task.state.sync = SyncMode::bsp; }), false);
  // C2C sets how far settings may be from each other.
  const auto with_c2c = [&](double times) {
    return changed(middle, [&](Task& task) { task.state.c2c_ratio = times * usual_c2c(); });
  };
  CHECK(boldness_of(with_c2c(3)) > 1.2);
  CHECK(boldness_of(with_c2c(0.3)) < 0.8);
  CHECK_THAT(boldness_of(with_c2c(1)), Catch::Matchers::WithinAbs(1, 1e-9));
}

TEST_CASE("what a training cell's tuner knows turns on what speaks of models and schedules",
          "[E-151][E-153][E-156][E-158][E-163][E-176]") {
  const auto trained = [](TrainingMethod method, TrainingModel model, int batch, int ranks) {
    TrainingSpec spec;
    spec.method = method;
    spec.model = model;
    spec.batch = batch;
    Task task;
    SpaceContext context;
    context.collective = Collective::allreduce;
    context.ranks = ranks;
    SpaceOptions options;
    options.scopes = {KnobScope::communicator, KnobScope::call};
    task.space = std::make_shared<const ActionSpace>(make_space(context, options));
    task.key = {"a",
                {.collective = Collective::allreduce,
                 .bin = SizeBin::of(Bytes{1 << 18}),
                 .group_size = ranks}};
    set_task(task.state, task.key.task, Bytes{1 << 18}, Bytes{1 << 18});
    set_training(task.state, spec, ranks);
    return task;
  };
  using enum TrainingMethod;
  using enum TrainingModel;
  const Task plain = trained(bsp_a2a, resnet50, 32, 4);
  const Task ready = trained(wfbp_a2a, resnet50, 32, 32);
  CHECK(boldness("unscheduled").applies(plain));
  CHECK(!boldness("unscheduled").applies(ready));
  CHECK(boldness("many wfbp ranks").applies(ready));
  CHECK(!boldness("many wfbp ranks").applies(plain));
  CHECK(boldness("scaling").applies(trained(bsp_a2a, resnet50, 64, 32)));
  CHECK(!boldness("scaling").applies(plain));
  CHECK(boldness("small batch").applies(trained(bsp_a2a, bert_base, 8, 4)));
  CHECK(!boldness("small batch").applies(plain));
  CHECK(plain.state.c2c_ratio.value_or(0) > 0);
  // Algorithms of an MPI library's call have shapes.
  Task waited = plain;
  waited.state.critical = true;
  CHECK(hinted_log_us(waited, 1) != hinted_log_us(plain, 1));
}

TEST_CASE("hints move the prior's mean, boldness its spread, and neither does without its term",
          "[E-176][E-163]") {
  Task task = nccl_task(1 << 18);
  task.state.critical = true;
  task.state.cross_container = true;
  const BeliefOptions plain;
  BeliefOptions hinted = plain;
  hinted.hint_weight = 0.1;
  BeliefOptions bold = plain;
  bold.boldness = true;
  const auto arm = [&](std::string_view algorithm, std::string_view protocol) {
    const auto& arms = task.space->arms();
    return static_cast<std::size_t>(
        std::find_if(arms.begin(), arms.end(),
                     [&](const Action& action) {
                       return task.space->value(action, "algorithm") == algorithm &&
                              task.space->value(action, "protocol") == protocol;
                     }) -
        arms.begin());
  };
  const BeliefView view = make_view(task, hinted);
  CHECK_THAT(view.prior[arm("tree", "LL")], Catch::Matchers::WithinAbs(-0.1, 1e-9));
  CHECK_THAT(view.prior[arm("ring", "Simple")], Catch::Matchers::WithinAbs(0.1, 1e-9));
  CHECK(view.prior[0] == 0);
  CHECK(make_view(task, plain).prior[arm("tree", "LL")] == 0);
  // The covariance of the difference to the default grows by the square; the level's does not.
  const auto spread = [&](const BeliefOptions& options) {
    const Posterior prior = TimeBelief(options).posterior(make_view(task, options));
    return prior.covariance(0, 0) + prior.covariance(5, 5) - 2 * prior.covariance(0, 5);
  };
  CHECK_THAT(spread(bold) / spread(plain),
             Catch::Matchers::WithinAbs(std::pow(boldness_of(task), 2), 1e-6));
  CHECK(boldness_of(task) > 1);
}

namespace {

/// Arms of one knob "channels" with values 1, 2, 4, ..., and of a second algorithm.
ActionSpace line_space() {
  return ActionSpace(
      "line",
      {{.name = "algorithm",
        .role = KnobRole::implementation,
        .target = "",
        .values = {"default", "ring", "tree"}},
       {.name = "channels", .target = "", .values = {"default", "1", "2", "4", "8", "16", "32"}}},
      [](const ActionSpace&, const Action& action) { return action[0] != 0 && action[1] != 0; });
}

struct Seen {
  ActionSpace space = line_space();
  std::vector<int> tries = std::vector<int>(space.arms().size(), 0);
  std::vector<double> seen = std::vector<double>(space.arms().size(), 0);
  std::vector<bool> failed = std::vector<bool>(space.arms().size(), false);
  void put(const Action& action, double log_us) {
    tries[*space.find(action)] = 1;
    seen[*space.find(action)] = log_us;
  }
  [[nodiscard]] MeasuredArms measured() const { return {space, tries, seen, failed, 0.05}; }
};

}  // namespace

TEST_CASE("after a peak only its neighbours are tried", "[E-106]") {
  Seen seen;
  seen.put({1, 1}, 2.0);
  seen.put({1, 3}, 1.0);
  const std::vector<bool> none(seen.space.arms().size(), false);
  CHECK(beyond_peaks(seen.measured()) == none);  // it may go on falling
  seen.put({1, 6}, 1.1);
  CHECK(beyond_peaks(seen.measured()) == none);  // within the noise of the peak
  seen.put({1, 6}, 1.5);
  std::vector<bool> expected = none;
  for (const std::uint8_t far : std::initializer_list<std::uint8_t>{1, 5, 6})
    expected[*seen.space.find({1, far})] = true;
  CHECK(beyond_peaks(seen.measured()) == expected);
  // At an end the only side decides; the other algorithm's arms are another line.
  seen.put({2, 6}, 0.5);
  seen.put({2, 2}, 0.9);
  for (const std::uint8_t far : std::initializer_list<std::uint8_t>{1, 2, 3, 4})
    expected[*seen.space.find({2, far})] = true;
  CHECK(beyond_peaks(seen.measured()) == expected);
}

TEST_CASE("what is more aggressive than a slow setting is left alone", "[E-148]") {
  Seen seen;
  seen.put({0, 0}, 1.0);
  seen.put({1, 3}, 1.1);
  const std::vector<bool> none(seen.space.arms().size(), false);
  CHECK(more_aggressive_than_slow(seen.measured()) == none);  // within the noise
  seen.put({1, 3}, 1.4);
  std::vector<bool> expected = none;
  for (const std::uint8_t more : std::initializer_list<std::uint8_t>{4, 5, 6})
    expected[*seen.space.find({1, more})] = true;
  CHECK(more_aggressive_than_slow(seen.measured()) == expected);
  seen.failed[*seen.space.find({2, 5})] = true;
  expected[*seen.space.find({2, 6})] = true;
  CHECK(more_aggressive_than_slow(seen.measured()) == expected);
}

TEST_CASE("closed arms are not open, with the term and behind the wall alone", "[E-106][E-148]") {
  Task task;
  task.space = std::make_shared<const ActionSpace>(line_space());
  task.key = {"a", {}};
  const auto open = [&](std::vector<SearchTerm> terms, bool wall) {
    task.state.cross_container = wall;
    task.state.shared_memory = !wall;
    AgentOptions options;
    options.terms = std::move(terms);
    BeliefMemory memory({}, options);
    memory.learn(task, 0, {true, Micros{100}});
    for (const auto& [arm, us] :
         {std::pair<Action, double>{{1, 1}, 200}, {{1, 3}, 80}, {{1, 6}, 200}})
      memory.learn(task, *task.space->find(arm), {true, Micros{us}});
    const std::vector<bool> unsettled = BeliefMemory::unsettled_arms(memory.entry(task));
    std::set<Action> arms;
    for (std::size_t a = 0; a < unsettled.size(); ++a)
      if (unsettled[a]) arms.insert(task.space->arms()[a]);
    return arms;
  };
  const std::size_t all = task.space->arms().size();
  CHECK(open({}, true).size() == all);
  const std::set<Action> near = open({SearchTerm::neighbours}, false);
  CHECK(near.size() == all - 3);
  for (const Action& far : {Action{1, 1}, {1, 5}, {1, 6}}) CHECK(!near.contains(far));
  CHECK(open({SearchTerm::wall}, false).size() == all);
  // {1, 1} was slower than the default: behind the wall no more of the ring's channels is tried.
  const std::set<Action> walled = open({SearchTerm::wall}, true);
  CHECK(walled.size() == all - 5);
  CHECK(walled.contains({1, 1}));
}

TEST_CASE("what is called often is explored more and for longer", "[E-104]") {
  Posterior posterior;
  posterior.mean = Eigen::VectorXd::Zero(2);
  posterior.covariance = Eigen::MatrixXd::Identity(2, 2);
  FastRandom one(1);
  FastRandom other(1);
  const Eigen::MatrixXd plain = draw_times(posterior, 4, one);
  CHECK((draw_times(posterior, 4, other, 2) - 2 * plain).cwiseAbs().maxCoeff() < 1e-6);
  const auto evaluations = [&](double frequency, bool term) {
    int sum = 0;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      Task task = nccl_task(1 << 18);
      task.frequency = frequency;
      AgentOptions options;
      options.seed = seed;
      if (term) options.terms = {SearchTerm::frequency};
      Bandit bandit(options, {});
      FastRandom random(seed);
      std::vector<double> us(task.space->arms().size());
      for (double& time : us) time = 100 * std::exp(0.2 * random.normal());
      while (!bandit.finished(task) && sum < 5000) {
        const std::size_t arm = bandit.act(task).arm;
        bandit.learn(task, arm, {true, Micros{us[arm]}});
        ++sum;
      }
    }
    return sum;
  };
  CHECK(evaluations(16, true) > evaluations(1, true));
  CHECK(evaluations(1, true) > evaluations(1.0 / 16, true));
  CHECK(evaluations(16, false) == evaluations(1, false));
}

TEST_CASE("terms are named in lists") {
  CHECK(parse_terms("hints,wall") == std::vector<SearchTerm>{SearchTerm::hints, SearchTerm::wall});
  CHECK(parse_terms("none").empty());
  CHECK_THROWS_AS(parse_terms("hint"), Error);
}
