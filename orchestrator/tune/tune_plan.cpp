#include "orchestrator/tune/tune_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <set>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/simulated.hpp"
#include "orchestrator/launch/observe.hpp"
#include "orchestrator/launch/simulated_launch.hpp"
#include "orchestrator/tune/work_time.hpp"
#include "profiles/machine_model_file.hpp"
#include "train/spec/training.hpp"
#include "tuner/action/reach.hpp"
#include "tuner/export/mpi_export.hpp"
#include "tuner/simulator/arm_model.hpp"
#include "tuner/simulator/machine_cost.hpp"
#include "tuner/state/state_from_regime.hpp"

namespace dynamiccl {
namespace {

using Knobs = std::map<std::string, std::string>;

constexpr const char* kRankingKnob = "mca.rmaps_base_ranking_policy";

/// NCCL between GPUs of this machine that nobody keeps from each other's memory.
bool reaches_peers(const Experiment& experiment, const PlannedGroup& group,
                   const EnvironmentProfile& profile) {
  if (experiment.cluster || profile.kind == EnvironmentKind::cross_docker) return false;
  // Ranks that take turns on a GPU are hosts of their own to NCCL.
  constexpr std::array kOther{"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_HOSTID", "NCCL_NET",
                              "DYNAMICCL_SHARED_GPUS"};
  return std::none_of(kOther.begin(), kOther.end(), [&](const char* name) {
    const auto settings = profile.backend_settings.find(group.backend);
    const bool by_profile = settings != profile.backend_settings.end() &&
                            std::any_of(settings->second.begin(), settings->second.end(),
                                        [&](const auto& setting) { return setting.name == name; });
    return by_profile || group.knobs.contains(setting_text(SettingScope::env, name)) ||
           std::getenv(name) != nullptr;
  });
}

bool each_has_a_node(const PlannedGroup& group) {
  return group.nodes > 1 && group.nodes == group.ranks;
}

SpaceContext context_of(const PlannedGroup& group, const EnvironmentProfile& profile,
                        const WorkCell& cell) {
  SpaceContext context;
  context.backend = group.backend;
  context.collective = cell.collective;
  context.architecture = group.architecture;
  context.ranks = group.ranks;
  context.nodes = group.nodes;
  context.size = cell.size;
  const auto ranking = group.knobs.find(kRankingKnob);
  context.dealt = ranking != group.knobs.end() && ranking->second == "node";
  // Over several nodes some ranks share one, unless each has its own.
  const bool apart = profile.kind == EnvironmentKind::cross_docker || each_has_a_node(group);
  context.shared_memory = !apart;
  context.peer_to_peer = !apart;
  return context;
}

/// What cannot act between these ranks is no setting to search: it would be kept by chance.
SpaceOptions space_options(const TuneOptions& tune, const PlannedGroup& group, const WorkCell& cell,
                           std::optional<bool> shared_memory) {
  SpaceOptions options;
  const auto found = tune.backends.find(group.backend);
  if (found != tune.backends.end()) options = found->second.space;
  options.own = tune.own;
  if (found == tune.backends.end()) return options;
  const auto algorithms = found->second.algorithms.find(cell.collective);
  if (algorithms != found->second.algorithms.end()) options.algorithms = algorithms->second;
  std::erase_if(options.launch, [&](const auto& knob) {
    return !acts_between_ranks(knob.first, group, shared_memory);
  });
  return options;
}

/// What every arm of a group needs, the default included, so that nothing else differs.
Knobs common_knobs(const PlannedGroup& group) {
  Knobs knobs = group.knobs;
  if (is_simulated(group.environment)) return knobs;
  // Without it Open MPI takes no algorithm from outside; with it and none forced it decides itself.
  if (backend_facts(group.backend).mca) knobs.try_emplace(kDynamicRules, "1");
  return knobs;
}

/// What a search may try first, as the doctor would: memory that each call takes from the kernel
/// anew is the commonest of its causes on CPUs (faulted-buffers), and all of the allocator's
/// settings together are its fix.
void expect_the_doctors_fix(const ActionSpace& space, std::vector<double>& prior_log_us) {
  constexpr double kExpectedGain = 1;  // ln(time)
  std::vector<std::size_t> knobs;
  for (std::size_t k = 0; k < space.knobs().size(); ++k) {
    const auto target = find_setting(space.knobs()[k].target);
    if (target && target->scope == SettingScope::malloc) knobs.push_back(k);
  }
  if (knobs.empty()) return;
  for (std::size_t a = 0; a < space.arms().size(); ++a)
    if (std::all_of(knobs.begin(), knobs.end(),
                    [&](std::size_t k) { return space.arms()[a][k] != 0; }))
      prior_log_us[a] -= kExpectedGain;
}

/// The analytic models know one kind of link.
void expect_two_levels(const ActionSpace& space, std::vector<double>& prior_log_us) {
  for (std::size_t a = 1; a < space.arms().size(); ++a)
    if (is_hierarchical(space, space.arms()[a])) prior_log_us[a] = prior_log_us[0] - kHierarchyGain;
}

/// What there is to set where SimGrid simulates, and what the models of the same machine expect.
TuneTask simulated_task(const EnvironmentProfile& profile, const PlannedGroup& group,
                        std::size_t index, const WorkCell& cell) {
  TuneTask task = task_in(group, index, cell);
  Knob algorithm{.name = "algorithm",
                 .role = KnobRole::implementation,
                 .scope = KnobScope::call,
                 .target = "algorithm",
                 .values = {"default"}};
  std::vector<std::string_view> models{""};
  for (const SmpiAlgorithm& one : simulated_settings(group.backend, cell.collective)) {
    algorithm.values.emplace_back(one.name);
    models.push_back(one.model);
  }
  task.search.task.space = std::make_shared<const ActionSpace>(
      "simulated", std::vector{algorithm}, [](const ActionSpace&, const Action&) { return true; });
  const MachineModel machine = parse_machine_model(profile.machine_toml, profile.machine);
  task.search.task.prior_log_us =
      expected_log_us(predict_collective(machine, cell.collective, group.ranks,
                                         static_cast<double>(cell.size.count())),
                      models);
  task.search.task.prior_trust = 1;
  set_task(task.search.task.state, task.search.task.key.task, cell.size, cell.size);
  return task;
}

TuneTask make_task(const Experiment& experiment, const TuneOptions& options,
                   const PlannedGroup& group, std::size_t index, const WorkCell& cell) {
  const EnvironmentProfile& profile = experiment.profiles.at(group.environment);
  if (profile.simulated()) return simulated_task(profile, group, index, cell);
  TuneTask task = task_in(group, index, cell);
  const CellView view = view_of(group, cell, group.knobs);
  task.held_out =
      std::any_of(options.held_out.begin(), options.held_out.end(),
                  [&](const Expression& expression) { return expression.matches(view); });
  SpaceContext context = context_of(group, profile, cell);
  if (!group.knobs.contains(kRankingKnob))
    context.dealt = experiment.cluster && experiment.cluster->dealt;
  context.huge_pages = options.huge_pages;
  // Of what NCCL has on NVLink the tables of algorithms know LL128 alone, NVLS is a profile's
  // choice.
  context.nvlink = options.ll128 && reaches_peers(experiment, group, profile);
  // What is detected, not declared, is known from the first launch on.
  context.ina_active = !regime_context(profile, experiment.machine).declared_aggregation.empty();
  task.search.task.space = std::make_shared<const ActionSpace>(
      make_space(context, space_options(options, group, cell, shares_memory(experiment, group))));
  // What the analytic models expect; 2: through a network, if only the machine's own stack.
  const int tier = context.shared_memory && group.nodes == 1 ? 1 : 2;
  task.search.task.prior_log_us =
      ArmModel(*task.search.task.space, context)
          .log_times(static_cast<double>(cell.size.count()), nominal_path(tier));
  expect_the_doctors_fix(*task.search.task.space, task.search.task.prior_log_us);
  expect_two_levels(*task.search.task.space, task.search.task.prior_log_us);
  set_task(task.search.task.state, task.search.task.key.task, cell.size, cell.size);
  task.search.task.state.parallelism = options.parallelism;
  if (context.ina_active) task.search.task.state.ina_active = true;
  return task;
}

struct ArmSetting {
  PlannedGroup group;  ///< without cells
  WorkCell cell;
};

ArmSetting setting_of(const TunePlan& plan, const Ask& ask, const std::string& salt) {
  const TuneTask& task = plan.tasks[ask.task];
  if (!task.runs.empty()) {
    const RunChoice& choice = task.runs.at(ask.arm);
    ArmSetting run{plan.base.groups[choice.group], choice.cell};
    run.group.cells.clear();
    // Without a salt the ids are the experiment's own: an ordinary run of it has measured the same.
    if (salt.empty()) return run;
    run.group.id = stable_id(run.group.id + "|" + salt);
    run.cell.id = stable_id(run.group.id + "|" + choice.cell.id);
    return run;
  }
  const ActionSpace& space = *task.search.task.space;
  const ActionSettings setting = space.setting(space.arms().at(ask.arm));
  ArmSetting arm;
  arm.group = plan.base.groups[task.group];
  arm.group.cells.clear();
  for (const auto& [name, value] : setting.launch_knobs) arm.group.knobs[name] = value;
  if (!setting.launch_knobs.empty() || !salt.empty())
    arm.group.id =
        stable_id(fmt::format("{}|{}|{}", arm.group.id, knobs_key(setting.launch_knobs), salt));
  arm.cell = task.cell;
  arm.cell.algorithm = setting.algorithm;
  arm.cell.knobs = setting.call_knobs;
  arm.cell.id = stable_id(fmt::format("{}|{}|{}|{}", arm.group.id, task.cell.id, setting.algorithm,
                                      knobs_key(setting.call_knobs)));
  return arm;
}

}  // namespace

std::optional<bool> shares_memory(const Experiment& experiment, const PlannedGroup& group) {
  if (each_has_a_node(group)) return false;
  const auto found = experiment.profiles.find(group.environment);
  if (experiment.cluster || found == experiment.profiles.end()) return std::nullopt;
  const EnvironmentProfile& profile = found->second;
  const auto names_transports = [](std::string_view name) {
    return name == "mca.btl" || name == "mca.pml" || name == "mca.mtl" || name == "env.UCX_TLS";
  };
  for (const auto& [name, value] : group.knobs)
    if (names_transports(name)) return std::nullopt;
  const auto settings = profile.backend_settings.find(group.backend);
  if (settings != profile.backend_settings.end())
    for (const BackendSetting& setting : settings->second)
      if (names_transports(setting_text(setting.scope, setting.name))) return std::nullopt;
  if (profile.kind == EnvironmentKind::bare_metal || profile.kind == EnvironmentKind::single_docker)
    return true;
  if (profile.kind == EnvironmentKind::cross_docker && profile.ipc == Sharing::private_ &&
      profile.uts == Sharing::private_)
    return false;
  return std::nullopt;
}

bool acts_between_ranks(const std::string& setting, const PlannedGroup& group,
                        std::optional<bool> shared_memory) {
  if (!backend_facts(group.backend).mca || !shared_memory) return true;
  if (setting.starts_with("mca.btl_tcp_")) return !*shared_memory;
  if (setting.starts_with("mca.btl_vader_") || setting.starts_with("mca.btl_sm_"))
    return *shared_memory;
  return true;
}

TuneTask task_in(const PlannedGroup& group, std::size_t index, WorkCell cell) {
  TuneTask task;
  task.group = index;
  task.environment = group.environment;
  task.search.size = cell.size;
  task.search.nodes = group.nodes;
  task.search.task.key = {group.environment,
                          {.collective = cell.collective,
                           .bin = SizeBin::of(cell.size),
                           .group_size = group.ranks,
                           .nodes = group.nodes,
                           .architecture = group.architecture,
                           .backend = group.backend}};
  task.cell = std::move(cell);
  return task;
}

std::string TuneTask::text(const TunePlan& plan, std::size_t arm) const {
  const ActionSpace& space = *search.task.space;
  if (runs.empty()) return space.text(space.arms().at(arm));
  const PlannedGroup& base = plan.base.groups[runs.at(arm).group];
  const auto place = space.knob_index("environment");
  const bool several = place && space.knobs()[*place].values.size() > 1;
  const WorkCell& run = runs[arm].cell;
  std::string text = fmt::format("{}{} {} {}", several ? base.environment + " " : "",
                                 name_of(base.backend), name_of(base.architecture), run.algorithm);
  if (const std::string how = configuration_text(run); !how.empty()) text += " " + how;
  // What is learnt of times until an accuracy is not to be taken for steps.
  if (trains_to_target(run)) text += fmt::format(" to {}", training_spec(run).target);
  return text;
}

std::size_t TunePlan::arm_count() const {
  std::size_t count = 0;
  for (const TuneTask& task : tasks) count += task.arms();
  return count;
}

bool TunePlan::simulated() const {
  return !tasks.empty() && is_simulated(tasks.front().environment);
}

void refuse_simulated(const Plan& plan) {
  for (const PlannedGroup& group : plan.groups)
    if (is_simulated(group.environment))
      throw Error(ErrorKind::input,
                  fmt::format("tune: {} is simulated: nothing is measured there that settings of a "
                              "job could be chosen by; `dynamiccl run` simulates its cells, and "
                              "`dynamiccl tune search` searches SMPI's algorithms for them",
                              group.environment));
}

TunePlan make_tune_plan(const Experiment& experiment, const Plan& plan, const TuneOptions& options,
                        bool simulated) {
  if (!simulated) refuse_simulated(plan);
  TunePlan result;
  result.options = options;
  for (const PlannedGroup& group : plan.groups) {
    PlannedGroup base = group;
    base.knobs = common_knobs(group);
    base.cells.clear();
    for (const PlannedCell& cell : group.cells) {
      if (!cell.impossible.empty() || cell.work.algorithm != "library" || !cell.work.knobs.empty())
        continue;
      base.cells.push_back(cell);
      result.tasks.push_back(
          make_task(experiment, options, group, result.base.groups.size(), cell.work));
    }
    if (!base.cells.empty()) result.base.groups.push_back(std::move(base));
  }
  if (result.tasks.empty())
    throw Error(ErrorKind::input,
                experiment.source_path +
                    ": no cell can be tuned: tuning starts from cells with algorithm \"library\" "
                    "that can run here; `dynamiccl plan` shows why the others cannot");
  return result;
}

ArmPlace place_of(const TunePlan& plan, const Ask& ask, const std::string& salt) {
  const ArmSetting arm = setting_of(plan, ask, salt);
  return {arm.group.id, arm.cell.id};
}

Plan plan_for(const TunePlan& plan, const std::vector<Ask>& asks, const std::string& salt) {
  Plan result;
  std::map<std::string, std::size_t> groups;
  std::set<std::string> cells;
  for (const Ask& ask : asks) {
    ArmSetting arm = setting_of(plan, ask, salt);
    const auto [place, is_new] = groups.try_emplace(arm.group.id, result.groups.size());
    if (is_new) result.groups.push_back(arm.group);
    if (cells.insert(arm.cell.id).second)
      result.groups[place->second].cells.push_back({std::move(arm.cell), ""});
  }
  return result;
}

std::size_t own_settings(const TunePlan& plan) {
  std::size_t count = 0;
  for (const TuneTask& task : plan.tasks) {
    if (!task.runs.empty() || is_simulated(task.environment)) continue;
    const ActionSpace& space = *task.search.task.space;
    const TaskKey& key = task.search.task.key.task;
    for (const Action& arm : space.arms())
      count += is_loadable(reach_of(key.backend, key.architecture, space.setting(arm))) ? 0 : 1;
  }
  return count;
}

std::vector<Ask> all_arms(const TunePlan& plan) {
  std::vector<Ask> asks;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t)
    for (std::size_t a = 0; a < plan.tasks[t].arms(); ++a) asks.push_back({t, a});
  return asks;
}

}  // namespace dynamiccl
