#include "tuner/simulator/world.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/vocabulary/backend.hpp"
#include "tuner/simulator/tiers.hpp"
#include "tuner/state/published_scaling.hpp"
#include "tuner/state/wire_fraction.hpp"

namespace dynamiccl {
namespace {

constexpr double kMiddleLog2Size = 18;  // 256 KiB: the slopes turn around it
constexpr std::size_t kZones = 10;

/// A backend's library has its own backend's name.
CclLibrary library_of(Backend backend) {
  return parse_named<CclLibrary>(name_of(backend_facts(backend).library));
}

int draw_tier(CurriculumStage stage, FastRandom& random) {
  switch (stage) {
    case CurriculumStage::first:
      return 1;
    case CurriculumStage::second:
      return random.chance(0.5) ? 1 : 2;
    case CurriculumStage::third:
      break;
  }
  // fabrics between nodes are over-sampled.
  const double u = random.uniform();
  return u < 0.2 ? 1 : u < 0.45 ? 2 : u < 0.75 ? 3 : 4;
}

template <class E>
E draw(std::initializer_list<E> values, FastRandom& random) {
  return *(values.begin() + random.below(values.size()));
}

/// Of the jobs that are drawn with a server, the share that is drawn anew: rings are what most jobs
/// run and most settings act on.
constexpr double kServersRedrawn = 0.75;

void draw_job(State& state, Architecture architecture, CurriculumStage stage, FastRandom& random) {
  state.sync = SyncMode::bsp;
  state.local_steps = 0;
  state.compression = Compression::none;
  state.wire_fraction = 1;
  state.parallelism = ParallelismMode::dp;
  // Gradients are merged for all-reduces alone.
  state.schedule =
      architecture == Architecture::ps
          ? draw({Schedule::none, Schedule::wfbp, Schedule::partitioned}, random)
          : draw({Schedule::none, Schedule::wfbp, Schedule::mg_wfbp, Schedule::partitioned},
                 random);
  state.fault_tolerance = FaultTolerance::none;
  state.watched = true;
  // As facts_of() counts: small CNNs to ResNet-50 and beyond.
  state.model_intensity = std::exp(random.uniform(std::log(50.0), std::log(2000.0)));
  state.parameters = std::pow(10, random.uniform(6.5, 9));
  state.local_batch = 1 << random.below(8);
  state.c2c_ratio =
      c2c_ratio(std::exp(random.uniform(0, 8)), *state.local_batch, *state.model_intensity);
  if (stage == CurriculumStage::first) return;
  if (random.chance(0.3)) {
    state.sync = SyncMode::local_sgd;
    state.local_steps = 1 << random.below(6);
  }
  if (random.chance(0.3)) {
    state.compression = Compression::fp16;
    state.wire_fraction = wire_fraction(Compression::fp16, 0);
  }
  if (random.chance(0.2)) state.parallelism = ParallelismMode::pp;
  if (stage == CurriculumStage::second) return;
  if (random.chance(0.3)) {
    state.compression = Compression::top_k;
    state.wire_fraction = wire_fraction(Compression::top_k, random.uniform(0.001, 0.05));
  }
  if (random.chance(0.3)) state.parallelism = ParallelismMode::three_d;
  if (random.chance(0.2)) state.fault_tolerance = FaultTolerance::ftar;
}

/// What a live run knows of a call that belongs to no job, which nothing watches.
State lone_call(State state) {
  const State nothing;
  state.sync = nothing.sync;
  state.local_steps = nothing.local_steps;
  state.compression = nothing.compression;
  state.wire_fraction = nothing.wire_fraction;
  state.parallelism = nothing.parallelism;
  state.schedule = nothing.schedule;
  state.fault_tolerance = nothing.fault_tolerance;
  state.model_intensity = nothing.model_intensity;
  state.parameters = nothing.parameters;
  state.local_batch = nothing.local_batch;
  state.c2c_ratio = nothing.c2c_ratio;
  state.watched = false;
  return state;
}

void draw_surroundings(SimFamily& family, int tier, FastRandom& random) {
  State& state = family.state;
  const SpaceContext& context = family.space->context;
  state.runtime = draw({EnvironmentKind::bare_metal, EnvironmentKind::singularity,
                        EnvironmentKind::single_docker, EnvironmentKind::cross_docker},
                       random);
  state.cross_container = state.runtime == EnvironmentKind::cross_docker;
  state.shared_memory = context.shared_memory;
  state.intra_link = context.nvlink          ? IntraLink::nvlink
                     : context.peer_to_peer  ? IntraLink::pcie
                     : context.shared_memory ? IntraLink::shm
                                             : IntraLink::none;
  state.inter_link = tier == 1   ? InterLink::none
                     : tier == 2 ? draw({InterLink::infiniband, InterLink::roce}, random)
                     : tier == 3 ? draw({InterLink::tcp_100g, InterLink::roce}, random)
                                 : draw({InterLink::tcp_10g, InterLink::tcp}, random);
  state.setting = DeploymentSetting::datacenter;
  state.cluster_class = tier <= 2 ? ClusterClass::specialised : ClusterClass::commodity;
  state.topology = tier == 1 ? std::nullopt : std::optional(Topology::fat_tree);
  state.tier_max = tier;
  state.tier_mix.emplace();
  state.tier_mix->fill(0);
  (*state.tier_mix)[static_cast<std::size_t>(tier)] = 1;
  state.ina_active = false;
  state.library = library_of(context.backend);
  const bool on_gpu = backend_facts(context.backend).on_gpu;
  if (on_gpu) state.sharing = SharingMode::dedicated;
  state.gpus_total = on_gpu ? context.ranks : 0;
  state.ranks_total = context.ranks;
  const ContainerFactor factor =
      container_factor(context.backend, *state.runtime, context.collective, context.architecture);
  family.environment_factor = random.uniform(factor.low, factor.high);
}

/// The hidden truth: the nominal path off by what a detector cannot see, and every implementation
/// off its model.
void draw_truth(SimFamily& family, int tier, FastRandom& random) {
  const WorldSpread& spread = family.spread;
  const ArmModel& model = family.space->model;
  family.nominal = nominal_path(tier, 0.5);
  family.truth = nominal_path(tier, random.uniform());
  family.truth.link.alpha_us *= std::exp(0.5 * random.normal());
  family.truth.link.gamma_us_per_byte *= std::exp(0.5 * random.normal());
  for (TransportModel* transport :
       {&family.truth.peer, &family.truth.shared, &family.truth.network}) {
    transport->channel_limit *= std::exp(0.6 * random.normal());
    transport->chunk_limit *= std::exp(0.6 * random.normal());
    transport->alpha0_us *= std::exp(0.4 * random.normal());
    transport->beta0_max *= std::exp(0.3 * random.normal());
  }
  family.truth.helper_gain = random.uniform(1.2, 8);
  const auto implementations = static_cast<std::size_t>(model.implementations());
  family.implementation_offset.resize(implementations);
  family.implementation_slope.resize(implementations);
  family.sensitivity.resize(implementations);
  for (std::size_t i = 0; i < implementations; ++i) {
    family.implementation_offset[i] = static_cast<float>(spread.implementation * random.normal());
    family.implementation_slope[i] = static_cast<float>(spread.slope * random.normal());
    family.sensitivity[i] = static_cast<float>(random.uniform(0.4, 1.0));
  }
  family.arm_offset.resize(model.arms());
  const ActionSpace& space = *family.space->space;
  std::vector<double> optimum;
  std::vector<double> depth;
  for (std::size_t k = 0; k < space.knobs().size(); ++k) {
    optimum.push_back(random.uniform(-0.5, static_cast<double>(space.knobs()[k].values.size())));
    depth.push_back(std::abs(spread.resource * random.normal()));
  }
  for (std::size_t a = 0; a < model.arms(); ++a) {
    double offset = spread.arm * random.normal();
    for (std::size_t k = space.implementation_knobs(); k < space.knobs().size(); ++k) {
      // Around its optimum a resource costs little, two steps away its depth.
      const double distance = (space.arms()[a][k] - optimum[k]) / 2;
      const double at_default = optimum[k] / 2;
      offset +=
          depth[k] * (std::min(distance * distance, 4.0) - std::min(at_default * at_default, 4.0));
    }
    family.arm_offset[a] = static_cast<float>(offset);
  }
  family.regret_by_zone.resize(kZones);
  for (double& regret : family.regret_by_zone)
    regret = random.chance(0.5) ? std::abs(spread.library_regret * random.normal()) : 0;
}

}  // namespace

void SimCatalog::add(SpaceContext context, const SpaceOptions& options) {
  if (!backends_.empty() &&
      std::find(backends_.begin(), backends_.end(), context.backend) == backends_.end())
    return;
  auto space = std::make_shared<const ActionSpace>(make_space(context, options));
  ArmModel model(*space, context);
  spaces_.push_back({context, std::move(space), std::move(model)});
}

SimCatalog::SimCatalog(std::vector<Backend> backends) : backends_(std::move(backends)) {
  using enum Collective;
  // larger groups are over-sampled: half of the group sizes have 16 ranks or more.
  for (const int ranks : {2, 4, 8, 16, 32, 64}) {
    SpaceOptions cpu;
    cpu.segments = {"8192", "65536", "524288"};
    cpu.fanouts = {"2", "8"};
    for (const Collective collective : {allreduce, broadcast, allgather}) {
      SpaceOptions with_launch = cpu;
      if (collective != broadcast)
        with_launch.launch = {{"mca.btl_tcp_sndbuf", {"131072", "4194304"}}};
      add({.backend = Backend::openmpi, .collective = collective, .ranks = ranks}, with_launch);
      with_launch.launch = {{"env.UCX_RNDV_THRESH", {"8192", "65536", "1048576"}}};
      add({.backend = Backend::mpich, .collective = collective, .ranks = ranks}, with_launch);
    }
    add({.backend = Backend::gloo, .collective = allreduce, .ranks = ranks}, cpu);
    add({.backend = Backend::gloo, .collective = allgather, .ranks = ranks}, cpu);
    SpaceOptions served;
    served.segments = {"32768", "1048576"};
    served.depths = {"1", "4"};
    served.shards = {"2", "8"};
    for (const Backend backend : {Backend::openmpi, Backend::mpich, Backend::gloo})
      for (const Collective collective : {push, push_pull})
        add({.backend = backend,
             .collective = collective,
             .architecture = Architecture::ps,
             .ranks = ranks},
            served);
    SpaceOptions gpu;
    gpu.channels = {"2", "8", "32"};
    gpu.threads = {"128"};
    gpu.chunks = {"1048576"};
    gpu.socket_threads = {"1", "4"};
    for (const Collective collective : {allreduce, allgather, broadcast}) {
      SpaceContext context{.backend = Backend::nccl, .collective = collective, .ranks = ranks};
      if (ranks > 8) context.nodes = ranks / 8;
      context.shared_memory = false;
      SpaceOptions network = gpu;
      network.threads = {"512"};
      add(context, network);  // cross-container or between nodes: sockets only
      if (collective == allreduce) {
        SpaceContext server = context;
        server.collective = push_pull;
        server.architecture = Architecture::ps;
        add(server, network);
      }
      if (ranks > 8) continue;
      context.nvlink = context.peer_to_peer = context.shared_memory = true;
      add(context, gpu);
      context.nvlink = false;
      add(context, gpu);
    }
  }
}

SimFamily sample_family(const SimCatalog& catalog, CurriculumStage stage, const WorldSpread& spread,
                        FastRandom& random) {
  SimFamily family;
  family.spread = spread;
  family.spread.noise *= std::exp(0.5 * random.normal());
  const int tier = draw_tier(stage, random);
  do {
    family.space = &catalog.spaces()[random.below(catalog.spaces().size())];
    if (tier > 1 && family.space->context.ranks < 4) continue;
    family.state = State{};
    draw_job(family.state, family.space->context.architecture, stage, random);
    // What scales by itself has little to teach: three of four are drawn anew.
  } while (
      (tier > 1 && family.space->context.ranks < 4) ||
      (family.space->context.architecture == Architecture::ps && random.chance(kServersRedrawn)) ||
      (scales_by_itself(family.state, family.space->context.ranks) && random.chance(0.75)));
  draw_surroundings(family, tier, random);
  draw_truth(family, tier, random);
  family.interference_rate = random.chance(0.5) ? 0.03 : 0;
  if (stage == CurriculumStage::third) family.fault_rate = random.chance(0.3) ? 0.01 : 0;
  family.lone = random.chance(0.5);
  return family;
}

void make_task(const SimFamily& family, double log2_size, SimTask& task) {
  const SimSpace& space = *family.space;
  const double nominal = std::exp2(log2_size);
  const double bytes = std::max(4.0, nominal * family.state.wire_fraction.value_or(1));
  task.space = &space;
  task.state = family.lone ? lone_call(family.state) : family.state;
  task.log2_size = log2_size;
  task.key = {.collective = space.context.collective,
              .bin = SizeBin::of(Bytes{static_cast<std::uint64_t>(bytes)}),
              .group_size = space.context.ranks,
              .nodes = space.context.nodes,
              .architecture = space.context.architecture,
              .backend = space.context.backend};
  task.state.collective = task.key.collective;
  task.state.architecture =
      task.key.architecture == Architecture::ps ? SumArchitecture::ps : SumArchitecture::allreduce;
  task.state.nominal_size = Bytes{static_cast<std::uint64_t>(nominal)};
  task.state.effective_size = Bytes{static_cast<std::uint64_t>(bytes)};
  task.state.group_size = task.key.group_size;
  task.state.nodes = task.key.nodes;
  task.prior_log_us = space.model.log_times(bytes, family.nominal);
  const std::vector<double> truth = space.model.log_times(bytes, family.truth);
  const double environment = std::log(family.environment_factor);
  const double from_middle = log2_size - kMiddleLog2Size;
  task.log_us.resize(truth.size());
  float plain_best = std::numeric_limits<float>::infinity();
  const auto zone = std::min(kZones - 1, static_cast<std::size_t>(std::max(0.0, log2_size / 4)));
  for (std::size_t a = 0; a < truth.size(); ++a) {
    const auto i = static_cast<std::size_t>(space.model.implementation(a));
    task.log_us[a] = static_cast<float>(truth[a] + environment) + family.implementation_offset[i] +
                     family.implementation_slope[i] * static_cast<float>(from_middle);
    if (i > 0) plain_best = std::min(plain_best, task.log_us[a]);
    task.log_us[a] += family.arm_offset[a];
  }
  // The library takes one of its algorithms, the best one or not.
  if (std::isfinite(plain_best)) {
    const float shift = plain_best + static_cast<float>(family.regret_by_zone[zone]) -
                        (task.log_us[0] - family.arm_offset[0]);
    for (std::size_t a = 0; a < truth.size() && space.model.implementation(a) == 0; ++a)
      task.log_us[a] += shift;
  }
  task.best_log_us = *std::min_element(task.log_us.begin(), task.log_us.end());
}

}  // namespace dynamiccl
