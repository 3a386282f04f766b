#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "benchmarks/transport_fit.hpp"
#include "tuner/simulator/tiers.hpp"
#include "tuner/simulator/vector_simulator.hpp"
#include "tuner/state/features.hpp"
#include "tuner/state/published_scaling.hpp"

using namespace dynamiccl;

TEST_CASE("analytic costs are those of the sources", "[C-25][C-26][C-27][C-29][X-54]") {
  const double m = 1 << 20;
  const auto work = [&](const char* name, int ranks) {
    return collective_work(name, {Collective::allreduce, ranks, m, 0, 0});
  };
  CHECK(work("ring", 8).rounds == 14);
  CHECK(work("ring", 8).volume == 2 * 7.0 / 8 * m);
  CHECK(work("recursive_doubling", 8).rounds == 3);
  CHECK(work("recursive_doubling", 8).volume == 3 * m);
  CHECK(work("nonoverlapping", 8).rounds == 6);
  CHECK(work("nonoverlapping", 8).volume == 6 * m);
  CHECK(work("rabenseifner", 8).rounds == 6);
  CHECK(work("rabenseifner", 8).volume == 2 * 7.0 / 8 * m);
  CHECK(work("tree", 8).rounds == 6);
  CHECK(work("tree", 8).volume == 2 * m);
  CHECK(work("ring", 1).rounds == 0);
  // Doubling wins while start-up decides, the ring once bytes do.
  const LinkParameters link{10, 1e-3, 0};
  const auto at = [&](const char* name, double bytes) {
    return collective_work(name, {Collective::allreduce, 16, bytes, 0, 0}).at(link);
  };
  CHECK(at("recursive_doubling", 64) < at("ring", 64));
  CHECK(at("ring", 1 << 26) < at("recursive_doubling", 1 << 26));
}

TEST_CASE("a pipeline has a best segment between start-up and waiting") {
  const LinkParameters link{10, 1e-3, 0};
  const auto at = [&](double segment) {
    return collective_work("pipeline", {Collective::broadcast, 8, 1 << 22, segment, 0}).at(link);
  };
  CHECK(at(65536) < at(1024));
  CHECK(at(65536) < at(1 << 22));
  CHECK(at(0) == at(1 << 22));
}

TEST_CASE("a server's calls cost by how they are cut, overlapped and answered", "[E-162]") {
  const LinkParameters link{10, 1e-3, 1e-3};
  const auto at = [&](Collective collective, CollectiveShape shape) {
    shape.collective = collective;
    shape.ranks = 5;
    return collective_work("default", shape).at(link);
  };
  using enum Collective;
  const double large = 1 << 26;
  // Sums hide behind what still comes, and answers behind the next shard.
  CHECK(at(push, {.bytes = large, .depth = 4}) < at(push, {.bytes = large, .depth = 1}));
  CHECK(at(push_pull, {.bytes = large, .shards = 8}) < at(push_pull, {.bytes = large}));
  // Every message starts up.
  CHECK(at(push, {.bytes = large, .segment = 1 << 20}) <
        at(push, {.bytes = large, .segment = 1024}));
  CHECK(at(push_pull, {.bytes = 4096, .shards = 8}) > at(push_pull, {.bytes = 4096}));
  // A server without shards answers when all has come; more shards than values are none.
  CHECK(at(push_pull, {.bytes = large}) > at(push, {.bytes = large}));
  CHECK(at(push_pull, {.bytes = 4, .shards = 8}) == at(push_pull, {.bytes = 4}));
  // On GPUs it is the library's reduce and broadcast.
  const CollectiveShape shape{.collective = push_pull, .ranks = 8, .bytes = large};
  CHECK(device_work("ring", shape).volume == 2 * 7 * large);
  CHECK(device_work("ring", {.collective = push, .ranks = 8, .bytes = large}).volume == 7 * large);
  CHECK(device_work("ring", {.ranks = 8, .bytes = large}).volume == 2 * 7.0 / 8 * large);
}

TEST_CASE("jobs with a server are drawn, rings more often", "[E-162]") {
  const SimCatalog catalog;
  const auto served = [](const SpaceContext& context) {
    return context.architecture == Architecture::ps;
  };
  const auto ring = [](const SpaceContext& context) {
    return context.architecture == Architecture::ring &&
           context.collective == Collective::allreduce;
  };
  double server_spaces = 0;
  double ring_spaces = 0;
  for (const SimSpace& space : catalog.spaces()) {
    server_spaces += served(space.context) ? 1 : 0;
    ring_spaces += ring(space.context) ? 1 : 0;
  }
  REQUIRE(server_spaces > 0);
  FastRandom random(6);
  double servers = 0;
  double rings = 0;
  bool settings_differ = false;
  for (int i = 0; i < 4000; ++i) {
    const SimFamily family = sample_family(catalog, CurriculumStage::third, {}, random);
    rings += ring(family.space->context) ? 1 : 0;
    if (!served(family.space->context)) continue;
    ++servers;
    CHECK(family.state.schedule != Schedule::mg_wfbp);
    SimTask task;
    make_task(family, 24, task);
    CHECK(task.key.architecture == Architecture::ps);
    CHECK(task.state.architecture == SumArchitecture::ps);
    settings_differ = settings_differ || task.best_log_us < task.log_us[0] - 0.1F;
  }
  CHECK(servers > 200);
  CHECK(rings > 2 * servers);
  CHECK(rings / ring_spaces > 2 * servers / server_spaces);
  CHECK(settings_differ);
}

TEST_CASE("the transport model peaks only because congestion falls with the knobs",
          "[E-190][E-191][E-194][X-61]") {
  TransportModel model;
  const auto at = [&](double channels) {
    return combined_bandwidth(model, {.channels = channels, .threads = 256, .chunk = 262144});
  };
  double peak = 0;
  double peak_channels = 0;
  for (double channels = 1; channels <= 128; ++channels)
    if (at(channels) > peak) {
      peak = at(channels);
      peak_channels = channels;
    }
  CHECK(peak_channels > 1);
  CHECK(peak_channels < 128);
  TransportModel free = model;
  free.channel_limit = free.chunk_limit = 1e12;
  for (double channels = 1; channels < 128; ++channels)
    CHECK(transport_bandwidth(free, {.channels = channels + 1}) >
          transport_bandwidth(free, {.channels = channels}));
  // The protocol's bandwidth does not depend on the chunk but through congestion.
  CHECK(std::abs(protocol_bandwidth(free, {.chunk = 4096}) /
                     protocol_bandwidth(free, {.chunk = 65536}) -
                 1) < 1e-9);
  TransportModel loaded = model;
  loaded.interference = 5;  // no more than the largest loss that was measured (E-199)
  const double share = combined_bandwidth(loaded, {}) / combined_bandwidth(model, {});
  CHECK(share < 0.8);
  CHECK(share >= 1 - kMaxInterferenceLoss);
}

TEST_CASE("jobs that scale by themselves are drawn less often", "[E-155]") {
  const SimCatalog catalog;
  FastRandom random(5);
  int scaling = 0;
  int alike = 0;  // as large, as intense, of other batches
  for (int i = 0; i < 20000; ++i) {
    const SimFamily family = sample_family(catalog, CurriculumStage::first, {}, random);
    const State& state = family.state;
    if (family.space->context.ranks < 32 || *state.model_intensity < published_intensity_split())
      continue;
    ++(*state.local_batch >= 64 ? scaling : alike);
  }
  // Two of eight batches are 64 or 128; a quarter of these stays.
  CHECK(alike > 300);
  CHECK(scaling < 0.16 * alike);
  CHECK(scaling > 0.04 * alike);
}

TEST_CASE("containers cost what the study measured", "[B-37][B-38][B-39][B-40]") {
  const auto factor = [](Backend backend, EnvironmentKind environment, Collective collective) {
    return container_factor(backend, environment, collective, Architecture::ring);
  };
  using enum EnvironmentKind;
  CHECK(factor(Backend::nccl, cross_docker, Collective::broadcast).high == 2.37);
  CHECK(factor(Backend::nccl, cross_docker, Collective::allreduce).low < 1);
  CHECK(factor(Backend::gloo, cross_docker, Collective::allreduce).high <= 1);
  CHECK(factor(Backend::openmpi, cross_docker, Collective::allreduce).high == 1.17);
  CHECK(factor(Backend::mpich, singularity, Collective::allreduce).low < 1);
  CHECK(factor(Backend::nccl, bare_metal, Collective::broadcast).high == 1);
}

TEST_CASE("tiers get slower and start later with the distance", "[E-41][X-34]") {
  for (int tier = 1; tier < 4; ++tier) {
    CHECK(tier_cost(tier, 0.5).alpha_us < tier_cost(tier + 1, 0.5).alpha_us);
    CHECK(tier_cost(tier, 0.5).beta_us_per_byte < tier_cost(tier + 1, 0.5).beta_us_per_byte);
  }
  CHECK(tier_cost(4, 0).alpha_us / tier_cost(1, 0).alpha_us == 30);
}

TEST_CASE("the transport fit explains a sweep of channels, threads and chunk", "[E-193]") {
  FastRandom random(3);
  TransportModel truth;
  truth.beta0_max = 3e4;
  truth.channel_limit = 20;
  std::vector<TransportPoint> points;
  for (const double channels : {1, 2, 4, 8, 16, 32})
    for (const double threads : {64, 256, 512})
      for (const double chunk : {65536, 524288, 4194304}) {
        const TransportKnobs knobs{channels, threads, chunk};
        points.push_back(
            {knobs, combined_bandwidth(truth, knobs) * std::exp(0.02 * random.normal())});
      }
  const TransportFit fit = fit_transport(points);
  CHECK(fit.relative_error < 0.06);
  CHECK(unimodal_share(points, 0.1) == 1);
  CHECK_THROWS_AS(fit_transport({}), Error);
  // Two peaks are seen as such.
  std::vector<TransportPoint> twice;
  double bandwidth[] = {1, 3, 1, 3};
  for (int i = 0; i < 4; ++i) twice.push_back({{std::exp2(i), 256, 65536}, bandwidth[i]});
  CHECK(unimodal_share(twice) == 0);
}

TEST_CASE("the curriculum's stages differ as the sources say", "[E-161][E-181][E-182][E-183]") {
  const SimCatalog catalog;
  FastRandom random(1);
  int faulty = 0;
  int far = 0;
  int large = 0;
  for (int i = 0; i < 300; ++i) {
    const SimFamily first = sample_family(catalog, CurriculumStage::first, {}, random);
    CHECK(first.state.tier_max == 1);
    CHECK(first.state.sync == SyncMode::bsp);
    CHECK(first.state.compression == Compression::none);
    CHECK(first.fault_rate == 0);
    const SimFamily second = sample_family(catalog, CurriculumStage::second, {}, random);
    CHECK(*second.state.tier_max <= 2);
    CHECK(second.state.compression != Compression::top_k);
    CHECK(second.fault_rate == 0);
    const SimFamily third = sample_family(catalog, CurriculumStage::third, {}, random);
    faulty += third.fault_rate > 0 ? 1 : 0;
    far += *third.state.tier_max >= 3 ? 1 : 0;
    large += *third.state.ranks_total >= 16 ? 1 : 0;
  }
  CHECK(faulty > 30);
  CHECK(far > 100);
  CHECK(large > 100);
}

TEST_CASE("simulated jobs repeat with the seed, and no arm beats the task's best") {
  const SimCatalog catalog;
  SimulatorOptions options;
  options.stage = CurriculumStage::third;
  VectorSimulator a(catalog, options, 16, 5);
  VectorSimulator b(catalog, options, 16, 5);
  VectorSimulator c(catalog, options, 16, 6);
  FastRandom random(9);
  std::vector<std::uint32_t> arms(16);
  std::vector<std::uint32_t> defaults(16, 0);
  bool differs = false;
  int episodes = 0;
  for (int s = 0; s < 100; ++s) {
    for (std::size_t i = 0; i < arms.size(); ++i)
      arms[i] = static_cast<std::uint32_t>(random.below(a.task(i).log_us.size()));
    const SimStep& one = a.step(arms);
    const SimStep& two = b.step(arms);
    REQUIRE(one.log_us == two.log_us);
    differs = differs || c.step(defaults).log_us != one.log_us;
    for (std::size_t i = 0; i < arms.size(); ++i) {
      CHECK(one.true_regret[i] >= 0);
      CHECK(std::isfinite(one.log_us[i]));
      CHECK(one.reward[i].total() <= 0);
      episodes += one.episode_ended[i];
      if (one.episode_ended[i] != 0) CHECK(one.task_ended[i] != 0);
    }
  }
  CHECK(differs);
  CHECK(episodes == 16 * (100 / 24));
}

TEST_CASE("a catalog of some backends draws no job of another", "[H-25]") {
  const SimCatalog gloo({Backend::gloo});
  const SimCatalog others({Backend::openmpi, Backend::mpich, Backend::nccl});
  CHECK(gloo.spaces().size() + others.spaces().size() == SimCatalog().spaces().size());
  FastRandom random(5);
  for (int i = 0; i < 50; ++i) {
    CHECK(sample_family(gloo, CurriculumStage::third, {}, random).space->context.backend ==
          Backend::gloo);
    CHECK(sample_family(others, CurriculumStage::third, {}, random).space->context.backend !=
          Backend::gloo);
  }
}

TEST_CASE("the prior promises large messages some time from memory that is kept, small ones none") {
  SpaceOptions options;
  options.algorithms = {"recursive_doubling"};
  options.launch = {{"malloc.keep", {"1"}}, {"malloc.huge_pages", {"1"}}};
  const SpaceContext context{.backend = Backend::mpich, .ranks = 2};
  const ActionSpace space = make_space(context, options);
  const ArmModel model(space, context);
  const auto large = model.times_us(1 << 26, nominal_path(1));
  const auto small = model.times_us(1 << 17, nominal_path(1));
  const auto at = [&](Action action) { return *space.find(action); };
  CHECK(large[at({1, 0, 1, 0})] < large[at({1, 0, 0, 0})]);
  CHECK(large[at({1, 0, 1, 1})] < large[at({1, 0, 1, 0})]);
  CHECK(small[at({1, 0, 1, 1})] == small[at({1, 0, 0, 0})]);
}

TEST_CASE("simulated calls show agents what live runs know of a lone call, or of a job's") {
  const SimCatalog catalog;
  FastRandom random(5);
  int lone = 0;
  for (int i = 0; i < 40; ++i) {
    const SimFamily family = sample_family(catalog, CurriculumStage::third, {}, random);
    SimTask task;
    make_task(family, 20, task);
    lone += family.lone ? 1 : 0;
    for (const Feature& row : feature_table()) {
      // What the policy does not see need not be there; NCCL's GPU sharing is the regime's.
      if (!row.source.in_policy || row.name == "gpu_sharing") continue;
      CAPTURE(row.name, family.lone);
      CHECK(row.known(task.state) ==
            (!row.source.tune.empty() || (!family.lone && !row.source.training.empty())));
    }
    CHECK(task.state.sharing.has_value() == (family.space->context.backend == Backend::nccl));
  }
  CHECK(lone > 8);
  CHECK(lone < 32);
}
