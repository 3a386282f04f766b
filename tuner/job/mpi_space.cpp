#include "tuner/job/mpi_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/malloc_settings.hpp"
#include "tuner/action/algorithm_rows.hpp"
#include "tuner/export/mpi_export.hpp"

namespace dynamiccl {
namespace {

constexpr std::string_view kMcaPrefix = "OMPI_MCA_";
/// Besides the allocator's: few launches can tell no more of settings that act together.
constexpr int kMostTogether = 1;

/// What a user sets himself to have the same effect.
std::string variable_of(const Setting& setting) {
  switch (setting.scope) {
    case SettingScope::mca:
      return std::string(kMcaPrefix) + setting.name;
    case SettingScope::malloc:
      return "";  // its variable is shared with others' tunables
    default:
      return setting.name;
  }
}

/// What stands in the job's way of a setting: a variable of the user's; "": nothing.
std::string taken_by(const Knob& knob, const std::set<std::string>& taken) {
  std::vector<Setting> all;
  const SettingName target = find_setting(knob.target).value();
  all.push_back({target.scope, target.name, ""});
  for (const auto& [value, settings] : knob.expansions)
    all.insert(all.end(), settings.begin(), settings.end());
  for (const Setting& setting : all)
    if (taken.contains(variable_of(setting))) return variable_of(setting);
  return "";
}

Knob launch_knob(const char* name, SettingScope scope, const std::string& target,
                 std::vector<std::string> values) {
  values.insert(values.begin(), "default");
  return {.name = name,
          .role = KnobRole::resource,
          .scope = KnobScope::launch,
          .target = setting_text(scope, target),
          .values = std::move(values)};
}

/// The rows of action/algorithm_rows that fit the ranks, by the variable that holds for a process.
std::optional<Knob> algorithm_knob(Backend library, const JobFacts& facts,
                                   const MainTraffic& traffic) {
  SpaceContext context;
  context.backend = library;
  context.collective = traffic.collective;
  context.ranks = facts.ranks;
  SpaceOptions options;
  options.scopes = {KnobScope::communicator, KnobScope::call};
  options.own = false;
  const ActionSpace all = make_space(context, options);
  const auto at = all.knob_index("algorithm");
  if (!at) return std::nullopt;
  const bool mca = backend_facts(library).mca;
  const std::string variable =
      mca ? fmt::format("coll_tuned_{}_algorithm", tuned_name(traffic.collective))
          : mpich_variable(traffic.collective);
  Knob knob = launch_knob("algorithm", mca ? SettingScope::mca : SettingScope::env, variable, {});
  for (const std::string& name : all.knobs()[*at].values) {
    if (name == "default" || is_own_algorithm(name)) continue;
    const int number = mca ? openmpi_algorithm(traffic.collective, name) : 0;
    if (number < 0) continue;
    knob.values.push_back(name);
    if (mca)
      knob.expansions[name] = {{SettingScope::mca, std::string(kDynamicRulesName), "1"},
                               {SettingScope::mca, variable, std::to_string(number)}};
  }
  if (knob.values.size() < 2) return std::nullopt;
  return knob;
}

void add_openmpi(std::vector<Knob>& knobs, const JobFacts& facts, bool may_bind) {
  constexpr SettingScope mca = SettingScope::mca;
  if (facts.ranks_per_host > 1 && facts.shared_memory) {
    knobs.push_back(launch_knob("single_copy", mca, "btl_vader_single_copy_mechanism", {"none"}));
    knobs.push_back(launch_knob("eager_bytes", mca, "btl_vader_eager_limit", {"16384", "65536"}));
  }
  if (facts.network) {
    knobs.push_back(launch_knob("links", mca, "btl_tcp_links", {"2", "4"}));
    Knob buffers = launch_knob("socket_buffers", mca, "btl_tcp_sndbuf", {"4194304"});
    buffers.expansions["4194304"] = {{mca, "btl_tcp_sndbuf", "4194304"},
                                     {mca, "btl_tcp_rcvbuf", "4194304"}};
    knobs.push_back(std::move(buffers));
  }
  if (!may_bind) return;
  Knob binding = launch_knob("binding", mca, "hwloc_base_binding_policy", {"none"});
  if (facts.ranks_per_host <= facts.cores) binding.values.emplace_back("core");
  knobs.push_back(std::move(binding));
}

void add_ucx(std::vector<Knob>& knobs, const JobFacts& facts) {
  constexpr SettingScope env = SettingScope::env;
  // Between machines a list without the network's transport would leave ranks without a way.
  if (!facts.network && facts.ranks_per_host > 1)
    knobs.push_back(launch_knob("transports", env, "UCX_TLS", {"posix", "posix,cma", "sysv"}));
  knobs.push_back(launch_knob("rendezvous_bytes", env, "UCX_RNDV_THRESH", {"16384", "inf"}));
}

bool is_of_allocator(const Knob& knob) {
  return find_setting(knob.target).value().scope == SettingScope::malloc;
}

int others_than_allocators(const ActionSpace& space, const Action& action) {
  int others = 0;
  for (std::size_t k = 0; k < action.size(); ++k)
    others += action[k] != 0 && !is_of_allocator(space.knobs()[k]) ? 1 : 0;
  return others;
}

}  // namespace

ActionSpace mpi_launch_space(const JobFacts& facts, const std::optional<MainTraffic>& traffic,
                             bool may_bind, const std::set<std::string>& taken,
                             std::vector<std::string>& left_out) {
  const Backend library = facts.library;
  std::vector<Knob> all;
  if (traffic && backend_facts(library).is_mpi)
    if (auto algorithm = algorithm_knob(library, facts, *traffic)) all.push_back(*algorithm);
  all.push_back(launch_knob("keep", SettingScope::malloc, std::string(kKeepSetting), {"true"}));
  if (facts.huge_pages)
    all.push_back(
        launch_knob("huge_pages", SettingScope::malloc, std::string(kHugePagesSetting), {"true"}));
  if (backend_facts(library).mca) add_openmpi(all, facts, may_bind);
  if (facts.ucx) add_ucx(all, facts);
  std::vector<Knob> knobs;
  for (Knob& knob : all) {
    if (const std::string by = taken_by(knob, taken); !by.empty())
      left_out.push_back(fmt::format("{} is set by you and stays as it is", by));
    else
      knobs.push_back(std::move(knob));
  }
  return ActionSpace(fmt::format("{} launch", name_of(library)), std::move(knobs),
                     [](const ActionSpace& space, const Action& action) {
                       return others_than_allocators(space, action) <= kMostTogether;
                     });
}

std::vector<double> mpi_launch_prior(const ActionSpace& space, Micros default_step) {
  constexpr double kExpectedGain = 1;  // ln(time), as a search of cells expects it
  constexpr double kUnknown = 0.05;    // what is set must gain something
  std::vector<double> prior;
  for (const Action& action : space.arms()) {
    bool any = false;
    bool all = true;
    for (std::size_t k = 0; k < action.size(); ++k) {
      if (!is_of_allocator(space.knobs()[k])) continue;
      any = true;
      all = all && action[k] != 0;
    }
    prior.push_back(std::log(std::max(default_step.count(), 1.0)) +
                    kUnknown * others_than_allocators(space, action) -
                    (any && all ? kExpectedGain : 0));
  }
  return prior;
}

std::map<std::string, std::string> launch_variables(const std::map<std::string, std::string>& knobs,
                                                    const std::string& tunables) {
  std::map<std::string, std::string> variables = settings_of(knobs, SettingScope::env);
  for (const auto& [name, value] : settings_of(knobs, SettingScope::mca))
    variables[std::string(kMcaPrefix) + name] = value;
  const auto allocator = settings_of(knobs, SettingScope::malloc);
  if (!allocator.empty())
    variables[std::string(kTunablesVariable)] = with_malloc_settings(tunables, allocator);
  return variables;
}

}  // namespace dynamiccl
