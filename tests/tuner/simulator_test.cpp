#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <functional>
#include <set>

#include "benchmarks/transport_fit.hpp"
#include "tuner/learn/world.hpp"
#include "tuner/simulator/machine_cost.hpp"
#include "tuner/simulator/tiers.hpp"
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
    const SimJob job = draw_job(catalog, CurriculumStage::third, random);
    rings += ring(job.space->context) ? 1 : 0;
    if (!served(job.space->context)) continue;
    ++servers;
    CHECK(job.state.schedule != Schedule::mg_wfbp);
    if (settings_differ) continue;
    const SimPlace place = make_place(job, {}, random);
    const SimCell& cell = place.cells.back();
    CHECK(cell.search.task.key.task.architecture == Architecture::ps);
    CHECK(cell.search.task.state.architecture == SumArchitecture::ps);
    settings_differ = cell.best_log_us < cell.log_us[0] - 0.1;
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
    const SimJob job = draw_job(catalog, CurriculumStage::first, random);
    const State& state = job.state;
    if (job.space->context.ranks < 32 || *state.model_intensity < published_intensity_split())
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
    const SimJob first = draw_job(catalog, CurriculumStage::first, random);
    CHECK(first.state.tier_max == 1);
    CHECK(first.state.sync == SyncMode::bsp);
    CHECK(first.state.compression == Compression::none);
    CHECK(first.state.parallelism == ParallelismMode::dp);
    CHECK(first.fault_rate == 0);
    const SimJob second = draw_job(catalog, CurriculumStage::second, random);
    CHECK(*second.state.tier_max <= 2);
    CHECK(second.state.compression != Compression::top_k);
    CHECK(second.fault_rate == 0);
    const SimJob third = draw_job(catalog, CurriculumStage::third, random);
    faulty += third.fault_rate > 0 ? 1 : 0;
    far += *third.state.tier_max >= 3 ? 1 : 0;
    large += *third.state.ranks_total >= 16 ? 1 : 0;
  }
  CHECK(faulty > 30);
  CHECK(far > 100);
  CHECK(large > 100);
}

namespace {

/// How many of some simulated jobs' cells have another best setting after a change, and how many
/// have another one for nothing.
int moved(const SimCatalog& catalog, const std::function<bool(const SimJob&)>& wanted,
          const std::function<void(SimJob&)>& change) {
  FastRandom random(17);
  int moved = 0;
  for (int found = 0; found < 25;) {
    SimJob job = draw_job(catalog, CurriculumStage::third, random);
    job.lone = false;
    if (!wanted(job)) continue;
    ++found;
    SimJob other = job;
    change(other);
    FastRandom one(static_cast<std::uint64_t>(found));
    FastRandom two(static_cast<std::uint64_t>(found));
    const SimPlace before = make_place(job, {}, one);
    const SimPlace after = make_place(other, {}, two);
    const auto best = [](const SimCell& cell) {
      return std::min_element(cell.log_us.begin(), cell.log_us.end()) - cell.log_us.begin();
    };
    for (std::size_t c = 0; c < std::min(before.cells.size(), after.cells.size()); ++c)
      moved += best(before.cells[c]) != best(after.cells[c]) ? 1 : 0;
  }
  return moved;
}

}  // namespace

TEST_CASE("what a simulated job is and where it runs moves which setting is best",
          "[E-182][E-183][E-184][E-199]") {
  const SimCatalog catalog;
  const auto any = [](const SimJob&) { return true; };
  const auto overlapped = [](const SimJob& job) {
    return job.state.schedule == Schedule::partitioned;
  };
  CHECK(moved(catalog, any, [](SimJob&) {}) == 0);
  // Where calls hide behind compute, what they take of it decides.
  CHECK(moved(catalog, overlapped, [](SimJob& job) { job.state.schedule = Schedule::none; }) > 5);
  CHECK(moved(catalog, overlapped, [](SimJob& job) {
          *job.state.c2c_ratio = *job.state.c2c_ratio > 1 ? 0.05 : 20;
        }) > 5);
  CHECK(moved(
            catalog,
            [&](const SimJob& job) {
              return overlapped(job) && job.state.sync == SyncMode::bsp && *job.state.c2c_ratio > 1;
            },
            [](SimJob& job) { job.state.local_steps = 32; }) > 5);
  CHECK(moved(catalog, any,
              [](SimJob& job) { job.state.cross_container = !*job.state.cross_container; }) > 5);
  CHECK(moved(catalog, any, [](SimJob& job) {
          job.state.interference = job.state.interference > 0 ? 0 : kMaxInterferenceLoss;
        }) > 0);
}

TEST_CASE("interference takes no more bandwidth than it says, of GPUs as of CPUs", "[E-60]") {
  FastRandom random(9);
  for (const Backend backend : {Backend::nccl, Backend::mpich}) {
    const SimCatalog catalog({backend});
    double most = 0;
    for (int i = 0; i < 20; ++i) {
      SimJob job = draw_job(catalog, CurriculumStage::third, random);
      const auto times = [&](double interference) {
        job.state.interference = interference;
        FastRandom same(static_cast<std::uint64_t>(i));
        return make_place(job, {0, 0, 0, 0, 0, 0}, same).cells;
      };
      const auto alone = times(0);
      const auto loaded = times(kMaxInterferenceLoss);
      for (std::size_t c = 0; c < alone.size(); ++c)
        for (std::size_t a = 0; a < alone[c].log_us.size(); ++a)
          most = std::max(most, loaded[c].log_us[a] - alone[c].log_us[a]);
    }
    INFO(name_of(backend));
    CHECK(most <= 1e-9 - std::log(1 - kMaxInterferenceLoss));
    CHECK(most > 0.1);
  }
}

namespace {

/// The fastest arm of each size on a machine, by the models alone: nothing is drawn.
std::vector<std::size_t> fastest_arms(const SimSpace& space, const MachineModel& machine,
                                      int stride) {
  MachineCost cost(machine, machine.ranks());
  PathModel path = nominal_path(3);
  path.machine = &cost;
  path.stride = stride;
  std::vector<std::size_t> fastest;
  for (int log2 = 10; log2 <= 26; log2 += 2) {
    const auto costs = space.model.costs(std::exp2(log2), path, "ring");
    const auto least = std::min_element(costs.begin(), costs.end(),
                                        [](const auto& a, const auto& b) { return a.us < b.us; });
    fastest.push_back(static_cast<std::size_t>(least - costs.begin()));
  }
  return fastest;
}

const SimSpace& space_of(const SimCatalog& catalog, Backend backend, int ranks) {
  return *std::find_if(catalog.spaces().begin(), catalog.spaces().end(), [&](const auto& space) {
    return space.context.backend == backend && space.context.ranks == ranks &&
           space.context.collective == Collective::allreduce && !space.context.peer_to_peer;
  });
}

MachineModel machine_of(MachineShape shape, std::vector<int> counts, int ranks_per_node) {
  MachineModel machine;
  machine.nodes = 64;
  machine.ranks_per_node = ranks_per_node;
  for (const int tier : {1, 3, 4}) {
    const LinkParameters link = tier_cost(tier, 0.5);
    machine.links[tier == 1 ? 0 : static_cast<std::size_t>(tier - 2)].classes = {
        {0, link.alpha_us, 1 / link.beta_us_per_byte}};
  }
  machine.shape = shape;
  machine.counts = std::move(counts);
  if (shape == MachineShape::fat_tree) machine.up = machine.cables = {1, 1};
  return machine;
}

}  // namespace

TEST_CASE("the shape of a network and a group's place in it alone move which setting is best",
          "[E-182][E-183][E-184]") {
  const SimCatalog catalog;
  using enum MachineShape;
  const SimSpace& space = space_of(catalog, Backend::openmpi, 64);
  const auto star_best = fastest_arms(space, machine_of(star, {}, 1), 1);
  CHECK(star_best == fastest_arms(space, machine_of(star, {}, 1), 1));
  CHECK(star_best != fastest_arms(space, machine_of(fat_tree, {8, 8}, 1), 1));
  CHECK(star_best != fastest_arms(space, machine_of(torus, {8, 8}, 1), 1));
  CHECK(star_best != fastest_arms(space, machine_of(cross_site, {2}, 1), 1));
  // A group of every fourth rank, as a job in three dimensions has them, shares no node.
  const MachineModel dense = machine_of(fat_tree, {8, 8}, 4);
  CHECK(fastest_arms(space, dense, 1) != fastest_arms(space, dense, 4));
}

TEST_CASE("sockets carry no more than their link, and helpers matter only below it", "[E-190]") {
  const SimCatalog catalog;
  const SimSpace& space = space_of(catalog, Backend::nccl, 8);
  MachineModel machine = machine_of(MachineShape::star, {}, 1);
  const double bytes = 1 << 26;
  const auto fastest_us = [&](double bytes_per_us, double helper_gain) {
    machine.links[1].classes = {{0, 1, bytes_per_us}};
    MachineCost cost(machine, 8);
    PathModel path = nominal_path(3);
    path.helper_gain = helper_gain;
    path.machine = &cost;
    double least = 1e300;
    for (const ArmCost& one : space.model.costs(bytes, path, "ring"))
      least = std::min(least, one.us);
    return least;
  };
  CHECK(fastest_us(100, 8) >= 2 * 7.0 / 8 * bytes / 100);
  CHECK(fastest_us(100, 8) == fastest_us(100, 2));
  CHECK(fastest_us(1e5, 8) < 0.7 * fastest_us(1e5, 2));
  CHECK(fastest_us(1e5, 8) == fastest_us(1e6, 8));
}

TEST_CASE("cells of simulated jobs say over how many nodes the group lies", "[E-181]") {
  const SimCatalog catalog;
  FastRandom random(11);
  int several = 0;
  for (int i = 0; i < 60; ++i) {
    const SimPlace place = draw_place(catalog, CurriculumStage::third, random);
    const int nodes = place.cells.front().search.nodes;
    CHECK(nodes == std::min(place.job.space->context.ranks, place.machine.nodes));
    CHECK(place.cells.front().search.task.state.nodes == nodes);
    CHECK((nodes > 1) == (place.job.tier > 1));
    several += nodes > 1 ? 1 : 0;
  }
  CHECK(several > 20);
}

TEST_CASE("simulated places repeat with the seed, and only settings other than the default fail",
          "[E-185]") {
  const SimCatalog catalog;
  FastRandom a(5);
  FastRandom b(5);
  int failed = 0;
  for (int i = 0; i < 30; ++i) {
    SimPlace one = draw_place(catalog, CurriculumStage::third, a);
    const SimPlace two = draw_place(catalog, CurriculumStage::third, b);
    REQUIRE(one.cells.size() == two.cells.size());
    REQUIRE(one.cells.size() >= 3);
    one.job.fault_rate = 0.5;
    std::set<RegimeKey> keys;
    for (std::size_t c = 0; c < one.cells.size(); ++c) {
      const SimCell& cell = one.cells[c];
      REQUIRE(cell.log_us == two.cells[c].log_us);
      keys.insert(cell.search.task.key);
      CHECK(cell.log_us.size() == cell.search.task.space->arms().size());
      CHECK(cell.search.task.prior_log_us.size() == cell.log_us.size());
      for (const double us : cell.log_us) CHECK(us >= cell.best_log_us);
      const Trial trial = one.measure(cell, 0, a);
      static_cast<void>(two.measure(cell, 0, b));
      CHECK(trial.ok);
      CHECK(std::abs(std::log(trial.time.count()) - cell.log_us[0]) < 2);
      if (cell.log_us.size() > 1) failed += one.measure(cell, 1, a).ok ? 0 : 1;
    }
    CHECK(keys.size() == one.cells.size());
    b = a;
  }
  CHECK(failed > 20);
}

TEST_CASE("a catalog of some backends draws no job of another", "[H-25]") {
  const SimCatalog gloo({Backend::gloo});
  const SimCatalog others({Backend::openmpi, Backend::mpich, Backend::nccl});
  CHECK(gloo.spaces().size() + others.spaces().size() == SimCatalog().spaces().size());
  FastRandom random(5);
  for (int i = 0; i < 50; ++i) {
    CHECK(draw_job(gloo, CurriculumStage::third, random).space->context.backend == Backend::gloo);
    CHECK(draw_job(others, CurriculumStage::third, random).space->context.backend != Backend::gloo);
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
    const SimPlace place = draw_place(catalog, CurriculumStage::third, random);
    const State& state = place.cells.front().search.task.state;
    lone += place.job.lone ? 1 : 0;
    for (const Feature& row : feature_table()) {
      // What the policy does not see need not be there; NCCL's GPU sharing is the regime's.
      if (!row.source.in_policy || row.name == "gpu_sharing") continue;
      CAPTURE(row.name, place.job.lone);
      CHECK(row.known(state) ==
            (!row.source.tune.empty() || (!place.job.lone && !row.source.training.empty())));
    }
    CHECK(state.sharing.has_value() == (place.job.space->context.backend == Backend::nccl));
  }
  CHECK(lone > 8);
  CHECK(lone < 32);
}
