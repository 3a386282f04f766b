#include "tuner/learn/world.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <utility>

#include "core/vocabulary/backend.hpp"
#include "tuner/simulator/machine_cost.hpp"
#include "tuner/simulator/tiers.hpp"
#include "tuner/state/published_scaling.hpp"
#include "tuner/state/state_from_regime.hpp"
#include "tuner/state/wire_fraction.hpp"

namespace dynamiccl {
namespace {

constexpr double kMiddleLog2Size = 18;  // 256 KiB: the slopes turn around it
constexpr std::size_t kCells = 6;

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

void draw_training(State& state, Architecture architecture, CurriculumStage stage,
                   FastRandom& random) {
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
  const double ratio = std::exp(random.uniform(std::log(0.05), std::log(20.0)));
  state.c2c_ratio = c2c_ratio(ratio * *state.local_batch * *state.model_intensity,
                              *state.local_batch, *state.model_intensity);
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
  state.interference = 0;
  return state;
}

/// Ranks of the machine for each rank of the group: the others are in its pipeline or tensor group.
int stride_of(const State& state) {
  return state.parallelism == ParallelismMode::three_d ? 4
         : state.parallelism == ParallelismMode::pp    ? 2
                                                       : 1;
}

/// A network of so many nodes, a power of two.
void draw_shape(MachineModel& machine, int tier, FastRandom& random) {
  using enum MachineShape;
  const int nodes = machine.nodes;
  machine.shape = tier == 4               ? cross_site
                  : nodes < 8 || tier < 3 ? draw({star, fat_tree}, random)
                                          : draw({star, fat_tree, torus, dragonfly, bcube}, random);
  int side = 1;
  while (side * side < nodes) side *= 2;
  switch (machine.shape) {
    case star:
      break;
    case cross_site:
      machine.counts = {2};
      break;
    case fat_tree:
      // Half of the trees are thin: a leaf switch has one way up for all its nodes.
      machine.counts = {side, nodes / side};
      machine.up = {1, random.chance(0.5) ? 1 : side};
      machine.cables = {1, 1};
      break;
    case torus:
      machine.counts = {side, nodes / side};
      break;
    case dragonfly:
      machine.counts = {2, 1, 2, nodes / 4};
      machine.cables = {1, 1, 1};
      break;
    case bcube:
      machine.counts = side * side == nodes
                           ? std::vector<int>{side, 2}
                           : std::vector<int>{2, std::countr_zero(static_cast<unsigned>(nodes))};
  }
}

/// As the state names it, which has no dragonfly.
std::optional<Topology> topology_of(const MachineModel& machine) {
  using enum MachineShape;
  if (machine.nodes == 1 || machine.shape == dragonfly) return std::nullopt;
  if (machine.shape == torus) return Topology::torus;
  return machine.shape == bcube ? Topology::bcube : Topology::fat_tree;
}

/// Links of the tier inside and between nodes. Across containers ranks of a node meet as if they
/// were on two.
MachineModel draw_machine(const SimJob& job, FastRandom& random) {
  MachineModel machine;
  const State& state = job.state;
  const SpaceContext& context = job.space->context;
  const int ranks = context.ranks * stride_of(state);
  const bool apart = state.cross_container.value_or(false) || !context.shared_memory;
  machine.ranks_per_node = ranks;
  if (job.tier > 1) machine.ranks_per_node = std::min(ranks / 2, 1 << random.below(4));
  machine.nodes = ranks / machine.ranks_per_node;
  const auto link_of = [&](int tier) {
    const LinkParameters cost = tier_cost(tier, random.uniform());
    const double kept = 1 - state.interference;
    return MachineLink{
        {{0, cost.alpha_us * std::exp(0.5 * random.normal()), kept / cost.beta_us_per_byte}}};
  };
  machine.links[0] = link_of(apart ? std::max(2, job.tier) : 1);
  machine.links[1] = link_of(std::clamp(job.tier, 2, 3));
  machine.links[2] = link_of(4);
  machine.sum_bytes_per_us = std::exp(0.5 * random.normal()) / tier_cost(1, 0.5).gamma_us_per_byte;
  if (machine.nodes > 1) draw_shape(machine, job.tier, random);
  return machine;
}

void draw_surroundings(SimJob& job, FastRandom& random) {
  const SpaceContext& context = job.space->context;
  State& state = job.state;
  const int tier = job.tier;
  using enum EnvironmentKind;
  const bool sockets = !context.shared_memory && context.nodes == 1 && tier == 1;
  state.runtime = sockets ? cross_docker
                  : context.peer_to_peer
                      ? draw({bare_metal, singularity, single_docker}, random)
                      : draw({bare_metal, singularity, single_docker, cross_docker}, random);
  state.cross_container = state.runtime == EnvironmentKind::cross_docker;
  state.shared_memory = context.shared_memory && !*state.cross_container;
  state.intra_link = context.nvlink         ? IntraLink::nvlink
                     : context.peer_to_peer ? IntraLink::pcie
                     : *state.shared_memory ? IntraLink::shm
                                            : IntraLink::none;
  state.inter_link = tier == 1   ? InterLink::none
                     : tier == 2 ? draw({InterLink::infiniband, InterLink::roce}, random)
                     : tier == 3 ? draw({InterLink::tcp_100g, InterLink::roce}, random)
                                 : draw({InterLink::tcp_10g, InterLink::tcp}, random);
  state.setting = DeploymentSetting::datacenter;
  state.cluster_class = tier <= 2 ? ClusterClass::specialised : ClusterClass::commodity;
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
  job.environment_factor = random.uniform(factor.low, factor.high);
  state.watched = true;
  if (random.chance(0.5)) state.interference = random.uniform(0.1, kMaxInterferenceLoss);
}

/// Paths of NCCL's transports off by what a detector cannot see. What interference leaves of the
/// bandwidth is the machine's links'.
PathModel draw_path(const SimJob& job, FastRandom& random) {
  PathModel path = nominal_path(job.tier);
  for (TransportModel* transport : {&path.peer, &path.shared, &path.network}) {
    transport->channel_limit *= std::exp(0.6 * random.normal());
    transport->chunk_limit *= std::exp(0.6 * random.normal());
    transport->alpha0_us *= std::exp(0.4 * random.normal());
  }
  path.helper_gain = random.uniform(1.2, 8);
  path.stride = stride_of(job.state);
  return path;
}

/// What no model knows of the arms, ln(time).
struct Strays {
  std::vector<double> implementation;
  std::vector<double> slope;
  std::vector<double> arm;
};

Strays draw_strays(const SimSpace& space, const WorldSpread& spread, FastRandom& random) {
  Strays strays;
  for (int i = 0; i < space.model.implementations(); ++i) {
    strays.implementation.push_back(spread.implementation * random.normal());
    strays.slope.push_back(spread.slope * random.normal());
  }
  const auto& knobs = space.space->knobs();
  std::vector<std::vector<double>> values;
  for (const Knob& knob : knobs) {
    values.emplace_back();
    for (std::size_t v = 0; v < knob.values.size(); ++v)
      values.back().push_back(v == 0 ? 0 : spread.resource * random.normal());
  }
  for (const Action& action : space.space->arms()) {
    strays.arm.push_back(spread.arm * random.normal());
    for (std::size_t k = space.space->implementation_knobs(); k < knobs.size(); ++k)
      strays.arm.back() += values[k][action[k]];
  }
  return strays;
}

/// Of compute, what a job's schedule lets its calls hide behind.
double overlap_of(const State& state) {
  switch (state.schedule.value_or(Schedule::none)) {
    case Schedule::none:
      return 0;
    case Schedule::wfbp:
      return 0.5;
    case Schedule::mg_wfbp:
      return 0.6;
    default:
      return 0.8;
  }
}

/// ln(time) of a step with each arm's call in it; of the call alone where it is in no job.
std::vector<double> step_times(const SimJob& job, const std::vector<ArmCost>& costs) {
  // Under Local-SGD so many steps compute between two calls.
  const double compute =
      costs[0].us / *job.state.c2c_ratio * std::max(1, job.state.local_steps.value_or(1));
  const double window = overlap_of(job.state) * compute;
  std::vector<double> times;
  for (const ArmCost& cost : costs) {
    const double hidden = std::min(cost.us, window);
    const double step = compute + cost.us - hidden + kMaxInterferenceLoss * cost.busy * hidden;
    times.push_back(std::log(job.lone ? cost.us : step));
  }
  return times;
}

/// Fills the truth of a cell.
void make_truth(const SimJob& job, const PathModel& path, const Strays& strays, double log2_size,
                SimCell& cell) {
  const ArmModel& model = job.space->model;
  const auto bytes = static_cast<double>(cell.search.size.count());
  const std::string_view library = model.library_choice(bytes, nominal_path(job.tier));
  std::vector<ArmCost> costs = model.costs(bytes, path, library);
  std::size_t chosen = 0;  // the library's own choice strays as that algorithm does
  for (std::size_t a = 0; a < costs.size() && chosen == 0; ++a)
    if (model.algorithm(a) == library) chosen = static_cast<std::size_t>(model.implementation(a));
  const double environment = std::log(job.environment_factor);
  for (std::size_t a = 0; a < costs.size(); ++a) {
    auto i = static_cast<std::size_t>(model.implementation(a));
    if (i == 0) i = chosen;
    costs[a].us *= std::exp(environment + strays.implementation[i] + strays.arm[a] +
                            strays.slope[i] * (log2_size - kMiddleLog2Size));
  }
  cell.log_us = step_times(job, costs);
  cell.best_log_us = *std::min_element(cell.log_us.begin(), cell.log_us.end());
}

SimCell make_cell(const SimJob& job, const MachineModel& machine, double log2_size) {
  const SpaceContext& context = job.space->context;
  const Bytes nominal{std::uint64_t{1} << static_cast<int>(log2_size)};
  const double wire = job.state.wire_fraction.value_or(1);
  SimCell cell;
  cell.search.size =
      Bytes{static_cast<std::uint64_t>(std::max(4.0, static_cast<double>(nominal.count()) * wire))};
  cell.search.nodes = std::min(context.ranks, machine.nodes);
  Task& task = cell.search.task;
  task.space = job.space->space;
  task.key = {"simulated",
              {.collective = context.collective,
               .bin = SizeBin::of(cell.search.size),
               .group_size = context.ranks,
               .nodes = cell.search.nodes,
               .architecture = context.architecture,
               .backend = context.backend}};
  task.state = job.lone ? lone_call(job.state) : job.state;
  set_task(task.state, task.key.task, nominal, cell.search.size);
  const auto bytes = static_cast<double>(cell.search.size.count());
  task.prior_log_us = job.space->model.log_times(bytes, nominal_path(std::min(job.tier, 2)));
  return cell;
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

Trial SimPlace::measure(const SimCell& cell, std::size_t arm, FastRandom& random) const {
  if (arm != 0 && random.chance(job.fault_rate)) return {false, Micros{}};
  double log_us = cell.log_us.at(arm) + noise * random.normal();
  if (random.chance(outlier_rate)) log_us += random.uniform(0, std::log(3.0));
  return {true, Micros{std::exp(log_us)}};
}

SimJob draw_job(const SimCatalog& catalog, CurriculumStage stage, FastRandom& random) {
  SimJob job;
  job.tier = draw_tier(stage, random);
  bool again = true;
  while (again) {
    job.space = &catalog.spaces()[random.below(catalog.spaces().size())];
    const SpaceContext& context = job.space->context;
    job.state = State{};
    draw_training(job.state, context.architecture, stage, random);
    // What scales by itself has little to teach: three of four are drawn anew.
    again = (job.tier > 1 && context.ranks < 4) ||
            (context.architecture == Architecture::ps && random.chance(kServersRedrawn)) ||
            (scales_by_itself(job.state, context.ranks) && random.chance(0.75));
  }
  draw_surroundings(job, random);
  job.lone = random.chance(0.5);
  if (stage == CurriculumStage::third && random.chance(0.3)) job.fault_rate = 0.01;
  return job;
}

SimPlace make_place(const SimJob& job, const WorldSpread& spread, FastRandom& random) {
  SimPlace place{.job = job, .machine = draw_machine(job, random), .cells = {}};
  place.noise = spread.noise * std::exp(0.5 * random.normal());
  place.outlier_rate = spread.outlier_rate;
  // No probe sees it: it is known where it is declared.
  if (random.chance(0.5)) place.job.state.topology = topology_of(place.machine);
  PathModel path = draw_path(job, random);
  MachineCost cost(place.machine, place.machine.ranks());
  path.machine = &cost;
  const Strays strays = draw_strays(*job.space, spread, random);
  // 1 KiB to 64 MiB, in whole powers as real sweeps have them; what compression makes as large as
  // another is the same cell.
  std::set<int> sizes;
  while (sizes.size() < kCells) sizes.insert(10 + static_cast<int>(random.below(17)));
  std::set<SizeBin> bins;
  for (const int size : sizes) {
    SimCell cell = make_cell(place.job, place.machine, size);
    if (!bins.insert(cell.search.task.key.task.bin).second) continue;
    make_truth(place.job, path, strays, size, cell);
    place.cells.push_back(std::move(cell));
  }
  return place;
}

}  // namespace dynamiccl
