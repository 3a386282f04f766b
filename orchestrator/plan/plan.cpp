#include "orchestrator/plan/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/malloc_settings.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/setting.hpp"
#include "core/vocabulary/splitmix64.hpp"
#include "core/vocabulary/text.hpp"
#include "core/wire/work_settings.hpp"
#include "orchestrator/plan/gpu_placement.hpp"
#include "orchestrator/plan/tuner_table.hpp"
#include "train/spec/llm_traffic.hpp"
#include "train/spec/method_settings.hpp"
#include "tuner/action/algorithm_rows.hpp"
#include "tuner/export/mpi_export.hpp"

namespace dynamiccl {
namespace {

using Knobs = std::map<std::string, std::string>;
/// A run of them would take weeks; their list alone a gigabyte.
constexpr std::size_t kMostCells = 1'000'000;
/// Points of a cross product that `where` and `exclude` may look at.
constexpr std::size_t kMostPoints = 20'000'000;

[[noreturn]] void refuse_too_many(std::string_view what, std::size_t most) {
  throw Error(ErrorKind::input,
              fmt::format("the plan has more than {} {}: fewer values of an axis, a size list with "
                          "a larger factor, or several experiment files make it one that can be "
                          "measured",
                          most, what));
}

constexpr double kLeastProcessBytes = 4 << 20;  // a worker and its library, before any buffer

std::uint64_t parts_of(Collective collective, int ranks) {
  return facts_of(collective).size == SizeRule::parts ? static_cast<std::uint64_t>(ranks) : 1;
}

/// The size that is measured: as nccl-tests has it, every rank's part is of whole elements. Where
/// nothing would be left it stays as asked for, and is impossible.
Bytes size_for_ranks(const WorkCell& cell, int ranks) {
  if (facts_of(cell.collective).size == SizeRule::nothing) return Bytes(0);
  const auto parts = parts_of(cell.collective, ranks);
  const auto unit = parts * element_bytes(cell.datatype);
  const auto whole = cell.size.count() / unit * unit;
  return whole == 0 ? cell.size : Bytes(whole);
}

std::string why_no_training(const PlannedGroup& group, const WorkCell& cell,
                            const Capabilities& can) {
  if (const auto reason = can.training_backend_reasons.find(group.backend);
      reason != can.training_backend_reasons.end())
    return reason->second;
  const TrainingSpec& spec = training_spec(cell);
  if (auto reason = training_contradiction(spec); !reason.empty()) return reason;
  if (auto reason = engine_misfit(spec.method, group.backend); !reason.empty()) return reason;
  if (auto reason = tuner_misfit(spec, group.backend); !reason.empty()) return reason;
  if (auto reason = gpu_misfit(spec, group.backend); !reason.empty()) return reason;
  if (auto reason = table_misfit(spec, group.backend); !reason.empty()) return reason;
  if (is_tuned(spec) && group.ranks < 2)
    return fmt::format("tuner = \"{}\": a lone worker calls no collective", spec.tuner);
  if (auto reason = ranks_misfit(spec, group.ranks); !reason.empty()) return reason;
  if (server_without_gpu(group) && dedicated_servers(spec) == 0)
    return "a colocated server is a worker too and needs its GPU: leave out "
           "env.DYNAMICCL_SERVER_GPU";
  if (auto reason = server_gpu_misfit(spec, !server_without_gpu(group)); !reason.empty())
    return reason;
  // Weights, a copy to start from, momentum, gradients, and about as much of activations.
  const double needed =
      6.0 * static_cast<double>(group.ranks) * static_cast<double>(cell.size.count());
  if (needed > static_cast<double>(can.memory.count()))
    return fmt::format("{} ranks that train {} need about {:.0f} GiB, the machine has {:.0f} GiB",
                       group.ranks, name_of(spec.model), needed / (1ULL << 30),
                       static_cast<double>(can.memory.count()) / (1ULL << 30));
  return "";
}

/// Does a setting make Open MPI take forced algorithms: a knob, the profile, the machine?
bool forces_algorithms(const PlannedGroup& group, const EnvironmentProfile& profile,
                       const Capabilities& can) {
  const std::string variable = "OMPI_MCA_" + std::string(kDynamicRulesName);
  for (const std::string& name :
       {std::string(kDynamicRules), setting_text(SettingScope::env, variable)})
    if (const auto knob = group.knobs.find(name); knob != group.knobs.end())
      return knob->second != "0";
  const auto settings = profile.backend_settings.find(group.backend);
  if (settings != profile.backend_settings.end())
    for (const BackendSetting& setting : settings->second)
      if (setting.name == kDynamicRulesName || setting.name == variable)
        return setting.value != "0";
  if (const auto set = profile.environment.find(variable); set != profile.environment.end())
    return set->second != "0";
  return can.may_force_algorithms;
}

/// Why a library will not take the algorithm or the settings of a call; "" = as far as is known
/// before it is asked, it will.
std::string why_no_algorithm(const PlannedGroup& group, const WorkCell& cell,
                             const EnvironmentProfile& profile, const Capabilities& can) {
  if (cell.algorithm != "library") {
    const auto offered = offered_algorithms(group.backend, cell.collective);
    if (std::find(offered.begin(), offered.end(), cell.algorithm) == offered.end())
      return fmt::format("{} has no algorithm \"{}\" of {}; {}", name_of(group.backend),
                         cell.algorithm, name_of(cell.collective),
                         suggestion(cell.algorithm, offered));
  }
  const bool own = is_own_algorithm(cell.algorithm) || !has_library_call(cell.collective);
  // Where the data lie and how they are called are the worker's own.
  const bool sets = std::any_of(cell.knobs.begin(), cell.knobs.end(), [](const auto& knob) {
    const auto setting = find_setting(knob.first);
    return !setting || !is_workers_own(setting->name);
  });
  const bool forced = cell.algorithm != "library" || sets;
  if (!backend_facts(group.backend).mca || own || !forced || forces_algorithms(group, profile, can))
    return "";
  return fmt::format(
      "Open MPI takes {} only where the launch sets {}: give {} = 1 in [knobs.{}.mca], which holds "
      "for the library's own choice, too",
      sets ? "a call's settings" : "a forced algorithm", kDynamicRulesName, kDynamicRulesName,
      name_of(group.backend));
}

/// Why parts that differ would be empty; "" = they are not.
std::string too_few_elements(const PlannedGroup& group, const WorkCell& cell) {
  if (facts_of(cell.collective).size != SizeRule::uneven || cell.size.count() == 0) return "";
  try {
    const auto settings = work_settings_of(settings_of(cell.knobs, SettingScope::call));
    const auto shares = least_elements(settings, group.ranks);
    if (cell.size.count() / element_bytes(cell.datatype) >= shares) return "";
    return fmt::format("{} over {} ranks needs {}, {} are fewer", name_of(cell.collective),
                       group.ranks,
                       counted(shares, fmt::format("{} element", name_of(cell.datatype))),
                       format_bytes(cell.size));
  } catch (const Error& error) {
    return error.what();
  }
}

/// Why the ranks cannot run here, whatever they measure.
std::string why_no_group(const PlannedGroup& group, const Capabilities& can) {
  if (const auto reason = can.backend_reasons.find(group.backend);
      reason != can.backend_reasons.end())
    return reason->second;
  if (const auto reason = can.pair_reasons.find({group.environment, group.backend});
      reason != can.pair_reasons.end())
    return reason->second;
  if (backend_facts(group.backend).mca)
    for (const auto& [name, value] : settings_of(group.knobs, SettingScope::mca))
      if (auto reason = unknown_openmpi_number(name, value); !reason.empty()) return reason;
  if (can.why_not_placed)
    if (auto reason = can.why_not_placed(group.ranks); !reason.empty()) return reason;
  if (!can.huge_pages_reason.empty() && asks_for_huge_pages(group.knobs))
    return fmt::format("{}: {}", setting_text(SettingScope::malloc, kHugePagesSetting),
                       can.huge_pages_reason);
  return why_too_few_gpus(group, can.gpus);
}

/// Why the buffers do not fit. Every rank on this machine has a process, an input, an output and
/// the expected result.
std::string why_no_memory(const PlannedGroup& group, const WorkCell& cell,
                          const Capabilities& can) {
  const double needed = static_cast<double>(group.ranks) *
                        (kLeastProcessBytes + 3.0 * static_cast<double>(cell.size.count()));
  if (needed <= static_cast<double>(can.memory.count())) return "";
  return fmt::format("{} ranks need about {:.1f} GiB, the machine has {:.1f} GiB", group.ranks,
                     needed / (1ULL << 30), static_cast<double>(can.memory.count()) / (1ULL << 30));
}

std::string why_impossible(const PlannedGroup& group, const WorkCell& cell,
                           const Capabilities& can) {
  if (const auto reason = can.environment_reasons.find(group.environment);
      reason != can.environment_reasons.end())
    return reason->second;
  const auto simulated = can.simulated.find(group.environment);
  const bool runs = simulated == can.simulated.end();
  if (auto reason = runs ? why_no_group(group, can) : simulated->second(group, cell);
      !reason.empty())
    return reason;
  if (cell.collective == Collective::training) return why_no_training(group, cell, can);
  if (!belongs_to(cell.collective, group.architecture))
    return fmt::format("{} does not belong to the {} architecture", name_of(cell.collective),
                       name_of(group.architecture));
  if (group.ranks < 2 && group.architecture == Architecture::ps)
    return "a parameter server and a worker need 2 ranks, the cell has 1";
  if (group.ranks < 2 && cell.collective == Collective::sendrecv)
    return "sendrecv needs 2 ranks, the cell has 1";
  if (cell.size.count() == 0 &&
      (is_own_algorithm(cell.algorithm) || !has_library_call(cell.collective)))
    return fmt::format(
        "size = 0: a call of nothing is a library's, and {} is our own",
        has_library_call(cell.collective) ? cell.algorithm : name_of(cell.collective));
  if (is_own_algorithm(cell.algorithm) && !has_own_algorithm(cell.algorithm, cell.collective))
    return fmt::format(
        "{} is written for {}, not for {}", cell.algorithm,
        cell.algorithm == "own_ring" ? "allreduce, allgather and reduce_scatter" : "allreduce",
        name_of(cell.collective));
  if (cell.algorithm == "aggregator" && cell.datatype != DataType::float32 &&
      cell.datatype != DataType::int32)
    return fmt::format("an aggregator sums float32, in fixed point, and int32, not {}",
                       name_of(cell.datatype));
  const auto parts = parts_of(cell.collective, group.ranks);
  if (cell.size.count() % (parts * element_bytes(cell.datatype)) != 0)
    return fmt::format("{} do not split into {} equal part{} of whole {} elements",
                       format_bytes(cell.size), parts, parts == 1 ? "" : "s",
                       name_of(cell.datatype));
  if (auto reason = too_few_elements(group, cell); !reason.empty()) return reason;
  return runs ? why_no_memory(group, cell, can) : "";
}

/// All combinations of the knobs of one scope; "default" leaves a knob out.
std::vector<Knobs> combinations(const std::vector<KnobAxis>& axes, bool call_scope) {
  std::vector<Knobs> result{{}};
  for (const auto& axis : axes) {
    const auto setting = find_setting(axis.name);
    if ((setting && setting->scope == SettingScope::call) != call_scope) continue;
    std::vector<Knobs> next;
    for (const auto& knobs : result) {
      for (const auto& value : axis.values) {
        Knobs more = knobs;
        if (value != "default") more[axis.name] = value;
        next.push_back(std::move(more));
        if (next.size() > kMostCells) refuse_too_many("combinations of knobs", kMostCells);
      }
    }
    result = std::move(next);
  }
  return result;
}

template <class T>
std::vector<T> or_else(const std::vector<T>& own, T from_axes) {
  return own.empty() ? std::vector<T>{std::move(from_axes)} : own;
}

template <class T>
bool allowed(const std::vector<T>& list, T value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

class Expansion {
 public:
  Expansion(const Experiment& experiment, const Capabilities& capabilities, const Expression* only)
      : experiment_(experiment), capabilities_(capabilities), only_(only) {
    for (const auto& [name, profile] : experiment.profiles) {
      auto json = parsed_json(to_json(profile));
      json.erase("description");
      environment_keys_[name] = name + "@" + stable_id(json.dump());
    }
    static const std::vector<KnobAxis> none;
    for (const auto backend : all_backends()) {
      const auto found = experiment.knobs.find(backend);
      const auto& axes = found == experiment.knobs.end() ? none : found->second;
      launch_knobs_[backend] = combinations(axes, false);
      call_knobs_[backend] = combinations(axes, true);
    }
  }

  Plan run() {
    expand(0, {});
    std::erase_if(plan_.groups, [](const PlannedGroup& group) { return group.cells.empty(); });
    return std::move(plan_);
  }

 private:
  static std::vector<Backend> all_backends() {
    std::vector<Backend> backends;
    for (const auto& entry : NameTable<Backend>::entries) backends.push_back(entry.value);
    return backends;
  }

  void expand(std::size_t dimension, const AxisChoice& so_far) {
    if (dimension == experiment_.dimensions.size()) return point(so_far);
    for (const auto& choice : experiment_.dimensions[dimension]) {
      AxisChoice next = so_far;
      if (choice.environment) next.environment = choice.environment;
      if (choice.backend) next.backend = choice.backend;
      if (choice.architecture) next.architecture = choice.architecture;
      if (choice.ranks) next.ranks = choice.ranks;
      if (choice.datatype) next.datatype = choice.datatype;
      if (choice.algorithm) next.algorithm = choice.algorithm;
      if (choice.in_place) next.in_place = choice.in_place;
      expand(dimension + 1, next);
    }
  }

  void point(const AxisChoice& axes) {
    for (const auto& knobs : launch_knobs_.at(*axes.backend)) {
      const std::size_t index = group_index(axes, knobs);
      for (const auto& work : experiment_.work) {
        if (!allowed(work.architectures, *axes.architecture)) continue;
        if (!allowed(work.backends, *axes.backend)) continue;
        if (!work.traffic.model.empty()) {
          add_traffic(axes, knobs, work);
        } else if (work.training.empty()) {
          add_cells(index, axes, work);
        } else {
          add_training(index, *axes.architecture, work);
        }
      }
    }
  }

  std::size_t group_index(const AxisChoice& axes, const Knobs& knobs) {
    const std::string key =
        fmt::format("environment={}|backend={}|architecture={}|ranks={}|{}",
                    environment_keys_.at(*axes.environment), name_of(*axes.backend),
                    name_of(*axes.architecture), *axes.ranks, knobs_key(knobs));
    const auto [found, is_new] = groups_.try_emplace(key, plan_.groups.size());
    if (is_new) {
      PlannedGroup group;
      group.id = stable_id(key);
      group.environment = *axes.environment;
      group.backend = *axes.backend;
      group.architecture = *axes.architecture;
      group.ranks = *axes.ranks;
      if (capabilities_.nodes_of && capabilities_.why_not_placed(group.ranks).empty())
        group.nodes = capabilities_.nodes_of(group.ranks);
      group.knobs = knobs;
      plan_.groups.push_back(std::move(group));
      seen_.emplace_back();
    }
    return found->second;
  }

  void add_cells(std::size_t group, const AxisChoice& axes, const Work& work) {
    const auto datatypes = or_else(work.datatypes, axes.datatype.value_or(DataType::float32));
    const auto algorithms = or_else(work.algorithms, axes.algorithm.value_or("library"));
    const auto in_place = or_else(work.in_place, axes.in_place.value_or(false));
    const auto calls = combinations(work.calls, true);
    WorkCell cell;
    for (const auto collective : work.collectives) {
      cell.collective = collective;
      for (const auto size : work.sizes) {
        cell.size = size;
        for (const auto datatype : datatypes) {
          cell.datatype = datatype;
          for (const auto& algorithm : algorithms) {
            cell.algorithm = algorithm;
            for (const bool place : in_place) {
              cell.in_place = place;
              for (const auto& settings : calls)
                add_cell(plan_.groups[group], seen_[group], cell, settings);
            }
          }
        }
      }
    }
  }

  /// Each kind of call with as many ranks as its group has, how often a rank makes it in a setting.
  void add_traffic(AxisChoice axes, const Knobs& launch_knobs, const Work& work) {
    const int world = *axes.ranks;
    const LlmModel& model = llm_named(work.traffic.model);
    const std::string step =
        fmt::format("{} {} on {}", work.traffic.model, work.traffic.parallel, world);
    for (const LlmCall& call :
         llm_traffic(model, parse_parallelism(work.traffic.parallel, model, world))) {
      axes.ranks = call.group;
      const std::size_t group = group_index(axes, launch_knobs);
      WorkCell cell;
      cell.collective = call.collective;
      cell.size = Bytes(static_cast<std::uint64_t>(call.bytes / work.traffic.shrink));
      cell.datatype = axes.datatype.value_or(DataType::float32);
      cell.algorithm = axes.algorithm.value_or("library");
      add_cell(plan_.groups[group], seen_[group], cell,
               {{kStep, fmt::format("{}: {}, {}", step, call.phase, call.what)},
                {kStepCalls, std::to_string(call.count)}});
    }
  }

  /// A method brings its architecture: groups of the other one get no cell.
  void add_training(std::size_t index, Architecture architecture, const Work& work) {
    PlannedGroup& group = plan_.groups[index];
    for (const auto& settings : combinations(work.settings, false)) {
      for (const auto method : work.training) {
        if (architecture_of(method) != architecture) continue;
        Settings asked;
        for (const auto& [name, value] : settings)
          if (takes_setting(method_row(method), name)) asked[name] = value;
        WorkCell cell = training_cell(parsed_training(asked, method));
        if (!wanted(group, cell)) continue;
        std::string key =
            fmt::format("{}|training|{}|{}", group.id, cell.algorithm, knobs_key(cell.knobs));
        if (const std::string digest = table_digest(training_spec(cell)); !digest.empty())
          key += "|table " + digest;
        cell.id = stable_id(key);
        if (!seen_[index].insert(cell.id).second) continue;
        std::string impossible = why_impossible(group, cell, capabilities_);
        const Protocol& protocol = experiment_.protocol.cells;
        if (impossible.empty())
          impossible =
              local_after_misfit(training_spec(cell), protocol.warmup, protocol.iterations);
        group.cells.push_back({std::move(cell), std::move(impossible)});
      }
    }
  }

  /// @param calls settings of the [[work]] itself, which win
  void add_cell(PlannedGroup& group, std::unordered_set<std::string>& seen, WorkCell cell,
                const Knobs& calls) {
    const Bytes asked = cell.size;
    for (const auto& swept : call_knobs_.at(group.backend)) {
      Knobs knobs = calls;
      knobs.insert(swept.begin(), swept.end());
      if (++points_ > kMostPoints) refuse_too_many("points to choose from", kMostPoints);
      cell.knobs = knobs;
      cell.size = asked;
      if (!wanted(group, cell)) continue;
      cell.size = size_for_ranks(cell, group.ranks);
      cell.id =
          stable_id(fmt::format("{}|{}|{}|{}|{}|{}|{}", group.id, name_of(cell.collective),
                                cell.size.count(), name_of(cell.datatype), cell.algorithm,
                                cell.in_place ? "in-place" : "out-of-place", knobs_key(knobs)));
      if (!seen.insert(cell.id).second) continue;
      if (++cells_ > kMostCells) refuse_too_many("cells", kMostCells);
      PlannedCell planned{cell, why_impossible(group, cell, capabilities_)};
      planned.rounded =
          !(cell.size == asked) && facts_of(cell.collective).size != SizeRule::nothing;
      const bool simulated = capabilities_.simulated.contains(group.environment);
      if (planned.impossible.empty() && !simulated)
        planned.impossible = why_no_algorithm(
            group, cell, experiment_.profiles.at(group.environment), capabilities_);
      // Workers know a call's knobs by their own names.
      planned.work.knobs = settings_of(knobs, SettingScope::call);
      if (planned.impossible.empty())
        planned.impossible = work_settings_misfit(planned.work, group.architecture, group.ranks,
                                                  backend_facts(group.backend).on_gpu);
      group.cells.push_back(std::move(planned));
    }
  }

  [[nodiscard]] bool wanted(const PlannedGroup& group, const WorkCell& cell) const {
    if (experiment_.where.empty() && experiment_.exclude.empty() && only_ == nullptr) return true;
    Knobs knobs = group.knobs;
    knobs.insert(cell.knobs.begin(), cell.knobs.end());
    const CellView view = view_of(group, cell, knobs);
    const auto holds = [&](const Expression& expression) { return expression.matches(view); };
    return std::all_of(experiment_.where.begin(), experiment_.where.end(), holds) &&
           std::none_of(experiment_.exclude.begin(), experiment_.exclude.end(), holds) &&
           (only_ == nullptr || holds(*only_));
  }

  std::size_t points_ = 0;
  std::size_t cells_ = 0;
  const Experiment& experiment_;
  const Capabilities& capabilities_;
  const Expression* only_;
  std::map<std::string, std::string> environment_keys_;
  std::map<Backend, std::vector<Knobs>> launch_knobs_;
  std::map<Backend, std::vector<Knobs>> call_knobs_;
  std::unordered_map<std::string, std::size_t> groups_;
  std::vector<std::unordered_set<std::string>> seen_;
  Plan plan_;
};

template <class T>
void shuffle(std::vector<T>& values, std::uint64_t seed) {
  for (std::size_t i = values.size(); i > 1; --i)
    std::swap(values[i - 1], values[splitmix64_next(seed) % i]);
}

std::uint64_t hashed(const std::string& key) { return std::stoull(stable_id(key), nullptr, 16); }

}  // namespace

std::string knobs_key(const std::map<std::string, std::string>& knobs) {
  std::string key;
  for (const auto& [name, value] : knobs) key += fmt::format("{}={};", name, value);
  return key;
}

CellView view_of(const PlannedGroup& group, const WorkCell& cell,
                 const std::map<std::string, std::string>& knobs) {
  CellView view;
  view.environment = group.environment;
  view.backend = name_of(group.backend);
  view.architecture = name_of(group.architecture);
  view.collective = name_of(cell.collective);
  view.datatype = name_of(cell.datatype);
  view.algorithm = cell.algorithm;
  view.ranks = group.ranks;
  view.size_bytes = cell.size.count();
  view.in_place = cell.in_place;
  view.knobs = &knobs;
  return view;
}

Plan make_plan(const Experiment& experiment, const Capabilities& capabilities,
               const Expression* only) {
  return Expansion(experiment, capabilities, only).run();
}

std::vector<std::size_t> block_order(std::size_t count, std::uint64_t seed, int block) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  shuffle(order, hashed(fmt::format("block|{}|{}", seed, block)));
  return order;
}

std::uint64_t launch_seed(std::uint64_t seed, const std::string& group_id, int block, int attempt) {
  return hashed(fmt::format("launch|{}|{}|{}|{}", seed, group_id, block, attempt));
}

std::vector<WorkCell> launch_cells(const PlannedGroup& group, std::uint64_t launch_seed) {
  std::vector<WorkCell> cells;
  for (const auto& cell : group.cells) {
    if (cell.impossible.empty()) cells.push_back(cell.work);
  }
  shuffle(cells, launch_seed);
  return cells;
}

}  // namespace dynamiccl
