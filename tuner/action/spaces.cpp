#include "tuner/action/spaces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/malloc_settings.hpp"
#include "core/vocabulary/setting.hpp"
#include "tuner/action/algorithm_rows.hpp"
#include "tuner/action/reach.hpp"

namespace dynamiccl {
namespace {

using Strings = std::vector<std::string>;

Strings with_default(const Strings& wanted, const Strings& built_in) {
  Strings values{"default"};
  const Strings& list = wanted.empty() ? built_in : wanted;
  for (const std::string& value : list)
    if (value != "default") values.push_back(value);
  return values;
}

bool ranks_fit(RanksRule rule, int ranks) {
  switch (rule) {
    case RanksRule::any:
      return true;
    case RanksRule::two:
      return ranks == 2;
    case RanksRule::power_of_two:
      return ranks >= 1 && std::has_single_bit(static_cast<unsigned>(ranks));
    case RanksRule::even:
      return ranks % 2 == 0;
  }
  return false;
}

/// NCCL's algorithms that need hardware or a shape that may be missing; forced there, they hang.
bool nccl_can(std::string_view algorithm, const SpaceContext& context) {
  if (algorithm.starts_with("collnet")) return context.collnet && context.nodes >= 2;
  if (algorithm == "nvls") return context.multicast && context.nvlink;
  if (algorithm == "nvls_tree") return context.multicast && context.nvlink && context.nodes >= 2;
  if (algorithm == "pat") return context.nodes == context.ranks && context.nodes >= 2;
  return true;
}

/// Every backend of the table has one, but not where switches sum.
bool has_actuator(const SpaceContext& context) { return !context.ina_active; }

bool has_own(std::string_view algorithm, const SpaceContext& context) {
  return backend_facts(context.backend).own_ring && context.architecture == Architecture::ring &&
         has_own_algorithm(algorithm, context.collective);
}

/// Several nodes, and several ranks on one of them.
bool has_levels(const SpaceContext& context) {
  return context.nodes >= 2 && context.ranks > context.nodes;
}

/// Over an MPI only where it is asked for by name: Open MPI's coll_han takes less, and MPICH gained
/// nothing (reports/measured/two-levels-2026-11).
bool has_own_levels(const SpaceContext& context, const SpaceOptions& options) {
  return has_levels(context) &&
         (!backend_facts(context.backend).is_mpi || !options.algorithms.empty());
}

bool is_own(const SpaceContext& context) {
  return context.architecture == Architecture::ps &&
         (context.collective == Collective::push || context.collective == Collective::pull ||
          context.collective == Collective::push_pull);
}

Backend table_backend(Backend backend) { return backend_facts(backend).library; }

const AlgorithmRow* row_of(const SpaceContext& context, std::string_view name) {
  for (const AlgorithmRow& row : algorithm_rows())
    if (row.backend == table_backend(context.backend) && row.collective == context.collective &&
        row.name == name)
      return &row;
  return nullptr;
}

Strings algorithm_values(const SpaceContext& context, const SpaceOptions& options) {
  const Strings known = known_algorithms(context.backend, context.collective);
  for (const std::string& name : options.algorithms)
    if (name != "default" && std::find(known.begin(), known.end(), name) == known.end())
      throw Error(ErrorKind::input,
                  fmt::format("{} has no {} algorithm \"{}\"; {}", name_of(context.backend),
                              name_of(context.collective), name, suggestion(name, known)));
  Strings values{"default"};
  for (const std::string& name : known) {
    const bool wanted = options.algorithms.empty() ||
                        std::find(options.algorithms.begin(), options.algorithms.end(), name) !=
                            options.algorithms.end();
    const AlgorithmRow* row = row_of(context, name);
    if (!wanted || (row != nullptr && !ranks_fit(row->ranks, context.ranks))) continue;
    if (backend_facts(context.backend).channels && !nccl_can(name, context)) continue;
    if (is_own_algorithm(name) && !has_own(name, context)) continue;
    if (name == "two_level" && !has_own_levels(context, options)) continue;
    values.push_back(name);
  }
  return values;
}

bool may_change(const SpaceOptions& options, KnobScope scope) {
  return std::find(options.scopes.begin(), options.scopes.end(), scope) != options.scopes.end();
}

/// glibc maps no block below this size anew unless asked to (M_MMAP_THRESHOLD in mallopt(3)).
constexpr std::uint64_t kLeastMapped = std::uint64_t{128} << 10;

/// The same as the default for this task.
bool changes_nothing(const std::string& target, const SpaceContext& context) {
  const auto setting = find_setting(target);
  if (!setting || setting->scope != SettingScope::malloc) return false;
  if (context.size.count() != 0 && context.size.count() < kLeastMapped) return true;
  return !context.huge_pages && setting->name == kHugePagesSetting;
}

void add_launch_knobs(std::vector<Knob>& knobs, const SpaceContext& context,
                      const SpaceOptions& options) {
  for (const auto& [target, values] : options.launch)
    if (!changes_nothing(target, context))
      knobs.push_back({.name = target,
                       .role = KnobRole::resource,
                       .scope = KnobScope::launch,
                       .target = target,
                       .values = with_default(values, {})});
}

/// Open MPI's collectives that coll_han does in two levels, on a node and between nodes.
bool has_two_levels(Collective collective) {
  return collective == Collective::allreduce || collective == Collective::broadcast ||
         collective == Collective::reduce || collective == Collective::allgather ||
         collective == Collective::gather;
}

/// What Open MPI can do about links between nodes that are slower than those inside: launch
/// settings, which a job takes as variables.
void add_node_knobs(std::vector<Knob>& knobs, const SpaceContext& context,
                    const SpaceOptions& options) {
  if (!backend_facts(context.backend).mca || is_own(context) || !has_levels(context)) return;
  const auto add = [&](const char* name, const char* target, Strings values) {
    for (const auto& [given, list] : options.launch)
      if (given == target) return;
    knobs.push_back({.name = name,
                     .role = KnobRole::resource,
                     .scope = KnobScope::launch,
                     .target = target,
                     .values = std::move(values)});
  };
  if (has_two_levels(context.collective))
    add("two_levels", "mca.coll_han_priority", {"default", "100"});
  if (context.dealt) add("ranking", "mca.rmaps_base_ranking_policy", {"default", "slot"});
}

/// Pipeline depth and shards of our own ring and server.
void add_own_knobs(std::vector<Knob>& knobs, const SpaceContext& context,
                   const SpaceOptions& options) {
  const auto add = [&](const char* name, Strings values) {
    knobs.push_back({.name = name,
                     .role = KnobRole::resource,
                     .scope = KnobScope::call,
                     .target = setting_text(SettingScope::call, name),
                     .values = std::move(values)});
  };
  if (is_own(context) ? context.collective != Collective::pull
                      : !options.depths.empty() && has_own("own_ring", context))
    add("pipeline_depth", with_default(options.depths, {"1", "4", "8"}));
  if (is_own(context) && context.collective == Collective::push_pull)
    add("shards", with_default(options.shards, {"2", "4", "8"}));
}

ActionSpace library_space(const SpaceContext& context, const SpaceOptions& options) {
  const bool openmpi = backend_facts(context.backend).mca;
  const std::string prefix = setting_text(
      SettingScope::call, "coll_tuned_" + tuned_name(context.collective) + "_algorithm_");
  const KnobScope scope = openmpi ? KnobScope::communicator : KnobScope::call;
  std::vector<Knob> knobs;
  if (may_change(options, scope)) {
    if (!is_own(context))
      knobs.push_back({.name = "algorithm",
                       .role = KnobRole::implementation,
                       .scope = scope,
                       .target = "algorithm",
                       .values = algorithm_values(context, options)});
    const std::string segment_target = is_own(context) ? "call.segment_bytes"
                                       : openmpi       ? prefix + "segmentsize"
                                                       : "call.max_segment_bytes";
    knobs.push_back(
        {.name = "segment_bytes",
         .role = KnobRole::resource,
         .scope = scope,
         .target = segment_target,
         .values = with_default(options.segments, {"8192", "32768", "131072", "1048576"}),
         .target_by_algorithm = {{"own_ring", "call.segment_bytes"},
                                 {"two_level", "call.segment_bytes"}}});
    add_own_knobs(knobs, context, options);
    if (openmpi)
      knobs.push_back({.name = "fanout",
                       .role = KnobRole::resource,
                       .scope = scope,
                       .target = prefix + "chain_fanout",
                       .values = with_default(options.fanouts, {"2", "8"}),
                       .target_by_algorithm = {{"knomial", prefix + "knomial_radix"}}});
  }
  if (may_change(options, KnobScope::launch)) {
    add_node_knobs(knobs, context, options);
    add_launch_knobs(knobs, context, options);
  }

  const auto allowed = [&](const ActionSpace& space, const Action& action) {
    const std::string_view algorithm = space.value(action, "algorithm");
    const AlgorithmRow* row = row_of(context, algorithm);
    const bool own =
        is_own_algorithm(algorithm) || (is_own(context) && context.collective != Collective::pull);
    if (!own && space.value(action, "pipeline_depth") != "default") return false;
    const bool segment = own || (row != nullptr && row->segment);
    const bool fanout = row != nullptr && row->fanout;
    const std::string_view segment_text = space.value(action, "segment_bytes");
    if (segment_text != "default") {
      if (!segment) return false;
      if (context.size.count() != 0 && parse_bytes(segment_text) >= context.size) return false;
    }
    if (!fanout && space.value(action, "fanout") != "default") return false;
    // Both levels are Open MPI's own choice of algorithms.
    if (algorithm != "default" && space.value(action, "two_levels") != "default") return false;
    return options.own ||
           is_loadable(reach_of(context.backend, context.architecture, space.setting(action)));
  };
  return ActionSpace(fmt::format("{} {}", name_of(context.backend), name_of(context.collective)),
                     std::move(knobs), allowed);
}

/// A per-call knob of our plugin, or the variable that holds it for the whole launch.
Knob nccl_knob(const SpaceContext& context, const char* name, KnobRole role, KnobScope scope,
               const char* per_call, const char* per_launch, Strings values) {
  const bool call = scope == KnobScope::call && context.nccl_plugin;
  return {.name = name,
          .role = role,
          .scope = call ? KnobScope::call : KnobScope::launch,
          .target = call ? per_call : per_launch,
          .values = std::move(values)};
}

/// NCCL's lists name what all functions may use, then what one must: a bare "tree" would leave
/// broadcast without an algorithm, and naming LL128 for all would force it on hardware without.
void for_this_collective(Knob& knob, const SpaceContext& context, const std::string& others) {
  if (knob.scope != KnobScope::launch) return;
  const SettingName target = find_setting(knob.target).value();
  for (std::size_t i = 1; i < knob.values.size(); ++i)
    knob.expansions[knob.values[i]] = {
        {target.scope, target.name,
         fmt::format("{};{}:{}", others, tuned_name(context.collective), knob.values[i])}};
}

void expand(Knob& knob, const SpaceContext& context) {
  if (knob.name == "algorithm") for_this_collective(knob, context, "ring");
  if (knob.name == "protocol") for_this_collective(knob, context, "LL,Simple");
  constexpr SettingScope env = SettingScope::env;
  if (knob.name == "transport")
    knob.expansions = {{"P2P", {{env, "NCCL_P2P_LEVEL", "SYS"}}},
                       {"SHM", {{env, "NCCL_P2P_DISABLE", "1"}}},
                       {"NET", {{env, "NCCL_P2P_DISABLE", "1"}, {env, "NCCL_SHM_DISABLE", "1"}}}};
  if (knob.name == "socket_threads")
    for (std::size_t i = 1; i < knob.values.size(); ++i)
      knob.expansions[knob.values[i]] = {{env, "NCCL_SOCKET_NTHREADS", knob.values[i]},
                                         {env, "NCCL_NSOCKS_PERTHREAD", "1"}};
}

Strings transports(const SpaceContext& context) {
  Strings values{"default"};
  if (context.peer_to_peer) values.emplace_back("P2P");
  if (context.shared_memory) values.emplace_back("SHM");
  values.emplace_back("NET");
  return values;
}

bool nccl_allowed(const SpaceContext& context, const ActionSpace& space, const Action& action) {
  const std::string_view algorithm = space.value(action, "algorithm");
  const std::string_view protocol = space.value(action, "protocol");
  // An algorithm without a protocol leaves NCCL a table row of three; the other way round, it may
  // pair the protocol with any algorithm, so that the arm would not say what ran.
  if ((algorithm == "default") != (protocol == "default")) return false;
  // What goes through the host or the network tears its stores.
  const std::string_view path = space.value(action, "transport");
  if (protocol == "LL128" && (!context.nvlink || path == "SHM" || path == "NET")) return false;
  if ((algorithm == "nvls" || algorithm == "nvls_tree") && protocol != "Simple") return false;
  if (algorithm.starts_with("collnet") && protocol != "Simple") return false;
  if (algorithm == "pat" && protocol != "Simple") return false;
  const std::string_view transport = space.value(action, "transport");
  const bool network = transport == "NET" || context.nodes > 1 ||
                       (transport == "default" && !context.peer_to_peer && !context.shared_memory);
  return network || space.value(action, "socket_threads") == "default";
}

ActionSpace nccl_space(const SpaceContext& context, const SpaceOptions& options) {
  using enum KnobRole;
  const auto call = KnobScope::call;
  const auto launch = KnobScope::launch;
  std::vector<Knob> knobs;
  const auto add = [&](const char* name, KnobRole role, KnobScope scope, const char* per_call,
                       const char* per_launch, Strings values) {
    Knob knob = nccl_knob(context, name, role, scope, per_call, per_launch, std::move(values));
    expand(knob, context);
    if (may_change(options, knob.scope)) knobs.push_back(std::move(knob));
  };
  add("algorithm", implementation, call, "algorithm", "env.NCCL_ALGO",
      algorithm_values(context, options));
  add("protocol", implementation, call, "call.protocol", "env.NCCL_PROTO",
      {"default", "LL", "LL128", "Simple"});
  add("transport", implementation, launch, "", "env.NCCL_P2P_LEVEL", transports(context));
  add("channels", resource, call, "call.channels", "env.NCCL_MAX_NCHANNELS",
      with_default(options.channels, {"1", "2", "4", "8", "16", "32"}));
  add("threads", resource, launch, "", "env.NCCL_NTHREADS",
      with_default(options.threads, {"64", "128", "256", "512"}));
  add("chunk_bytes", resource, launch, "", "env.NCCL_BUFFSIZE",
      with_default(options.chunks, {"1048576", "4194304", "16777216"}));
  add("socket_threads", resource, launch, "", "env.NCCL_SOCKET_NTHREADS",
      with_default(options.socket_threads, {"1", "2", "4"}));
  if (may_change(options, launch)) add_launch_knobs(knobs, context, options);
  return ActionSpace(fmt::format("nccl {}", name_of(context.collective)), std::move(knobs),
                     [&](const ActionSpace& space, const Action& action) {
                       return nccl_allowed(context, space, action);
                     });
}

}  // namespace

std::string tuned_name(Collective collective) {
  if (collective == Collective::broadcast) return "bcast";
  if (collective == Collective::reduce_scatter) return "reduce_scatter_block";
  return std::string(name_of(collective));
}

std::vector<std::string> known_algorithms(Backend backend, Collective collective) {
  std::vector<std::string> names;
  for (const AlgorithmRow& row : algorithm_rows())
    if (row.backend == table_backend(backend) && row.collective == collective)
      names.emplace_back(row.name);
  for (const char* own : {"own_ring", "two_level"})
    if (backend_facts(backend).own_ring && has_own_algorithm(own, collective))
      names.emplace_back(own);
  return names;
}

bool is_hierarchical(const ActionSpace& space, const Action& action) {
  const auto is_set = [&](std::string_view knob) {
    return space.knob_index(knob) && space.value(action, knob) != "default";
  };
  return is_set("two_levels") || space.value(action, "algorithm") == "two_level";
}

ActionSpace make_space(const SpaceContext& context, const SpaceOptions& options) {
  if (!has_actuator(context))
    return ActionSpace(
        fmt::format("{} {} (default only)", name_of(context.backend), name_of(context.collective)),
        std::vector<Knob>{}, [](const ActionSpace&, const Action&) { return true; });
  return backend_facts(context.backend).channels ? nccl_space(context, options)
                                                 : library_space(context, options);
}

}  // namespace dynamiccl
