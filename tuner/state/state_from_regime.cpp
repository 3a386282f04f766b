#include "tuner/state/state_from_regime.hpp"

#include <algorithm>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/json.hpp"
#include "profiles/detect/link_tier.hpp"
#include "profiles/detect/pair_places.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

const json& at(const json& object, const char* group, const char* key) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto outer = object.find(group);
  if (outer == object.end() || !outer->is_object()) return kNull;
  const auto inner = outer->find(key);
  return inner == outer->end() ? kNull : *inner;
}

std::optional<bool> flag(const json& value) {
  return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt;
}

std::string text(const json& value) { return value.is_string() ? value.get<std::string>() : ""; }

std::optional<InterLink> inter_link_of(const json& regime) {
  const std::string link = text(at(regime, "ingredients", "inter_link"));
  const std::string tier = text(at(regime, "ingredients", "inter_tier"));
  // RoCE stays RoCE: what is known of InfiniBand is not known of it.
  if (link == "infiniband" && flag(at(regime, "features", "gpudirect_rdma")).value_or(false))
    return InterLink::gpudirect_rdma;
  if (link == "nvswitch") return InterLink::nvswitch;
  if (link.starts_with("roce")) return InterLink::roce;
  if (link == "infiniband") return InterLink::infiniband;
  if (link == "none") return InterLink::none;
  if (link != "tcp") return std::nullopt;
  if (tier == "10GbE") return InterLink::tcp_10g;
  if (tier == "100GbE") return InterLink::tcp_100g;
  return InterLink::tcp;
}

std::optional<CclLibrary> library_of(const std::string& name) {
  for (const auto& entry : NameTable<CclLibrary>::entries)
    if (name.starts_with(entry.name)) return entry.value;
  if (name.starts_with("cuda-aware-mpi")) return CclLibrary::openmpi;
  if (name.empty()) return std::nullopt;
  return CclLibrary::other;
}

/// Shares of pairs per tier; nullopt where the links or the pairs' places are not known.
std::optional<std::array<double, kTiers>> tier_mix_of(const json& regime, int nodes) {
  const json& mix = at(regime, "pairs", "mix");
  if (!mix.is_object() || mix.empty()) return std::nullopt;
  const auto inside = link_tier(regime, 1);
  const auto outside = link_tier(regime, std::max(2, nodes));
  std::array<double, kTiers> shares{};
  bool reaches_out = false;
  for (const auto& [name, share] : mix.items()) {
    const auto place = find_named<PairPlace>(name);
    if (!place || !share.is_number()) return std::nullopt;
    const bool on_one_node = *place <= PairPlace::node;
    reaches_out = reaches_out || !on_one_node;
    auto tier = on_one_node ? inside : outside;
    // Other zones are other datacentres, whatever link leads there.
    if (*place == PairPlace::apart) tier = kTiers - 1;
    if (!tier) return std::nullopt;
    shares[static_cast<std::size_t>(*tier)] += share.get<double>();
  }
  // Nodes that could not be distinguished, as containers as nodes of one machine.
  if (nodes > 1 && !reaches_out) return std::nullopt;
  return shares;
}

/// The farthest tier that any pair is on.
int worst_of(const std::array<double, kTiers>& mix) {
  int worst = 0;
  for (int tier = 0; tier < kTiers; ++tier)
    if (mix[static_cast<std::size_t>(tier)] > 0) worst = tier;
  return worst;
}

}  // namespace

State state_from_regime(const json& regime, int nodes) {
  State state;
  const auto feature = [&](const char* key) -> const json& { return at(regime, "features", key); };
  state.cross_container = flag(feature("is_cross_container"));
  const auto& runtimes = NameTable<EnvironmentKind>::entries;
  if (const auto place = whole_number<std::size_t>(feature("container_runtime"));
      place && *place < runtimes.size())
    state.runtime = runtimes[*place].value;
  const std::string inside = text(at(regime, "ingredients", "intra_link"));
  // Memory of the host all the same.
  state.intra_link = find_named<IntraLink>(inside);
  state.inter_link = inter_link_of(regime);
  state.shared_memory = flag(feature("shared_memory_between_ranks"));
  state.ina_active = flag(feature("is_ina_active"));
  state.cluster_class = find_named<ClusterClass>(text(feature("cluster_class")));
  state.library = library_of(text(at(regime, "ingredients", "library")));
  const std::string sharing = text(at(regime, "ingredients", "gpu"));
  state.sharing = find_named<SharingMode>(sharing);
  state.nodes = nodes;
  state.tier_max = link_tier(regime, nodes);
  state.tier_mix = tier_mix_of(regime, nodes);
  if (state.tier_mix)
    state.tier_max = std::max(state.tier_max.value_or(0), worst_of(*state.tier_mix));
  // What is declared.
  state.topology = find_named<Topology>(text(at(regime, "declared", "topology")));
  state.setting = find_named<DeploymentSetting>(text(at(regime, "declared", "deployment")));
  return state;
}

namespace {

/// One network input for what sends the same messages.
Collective counted_as(Collective collective) {
  if (collective == Collective::alltoallv) return Collective::alltoall;
  if (collective == Collective::allgatherv) return Collective::allgather;
  if (collective == Collective::scatter) return Collective::gather;
  return collective == Collective::barrier ? Collective::allreduce : collective;
}

/// What one node means: all pairs of ranks share the tier that is known, and one site is no
/// federation.
/// @param gpus of all ranks
void set_placement(State& state, int gpus) {
  state.gpus_total = gpus;
  if (gpus == 0) state.copy_time = Micros(0);
  if (state.nodes.value_or(1) > 1) return;
  if (!state.setting) state.setting = DeploymentSetting::datacenter;
  if (!state.tier_max || state.tier_mix) return;
  state.tier_mix.emplace();
  state.tier_mix->fill(0);
  (*state.tier_mix)[static_cast<std::size_t>(*state.tier_max)] = 1;
}

}  // namespace

void set_task(State& state, const TaskKey& key, Bytes nominal, Bytes effective) {
  state.collective = counted_as(key.collective);
  state.nominal_size = nominal;
  state.effective_size = effective;
  state.group_size = key.group_size;
  state.nodes = key.nodes;
  if (!state.ranks_total) state.ranks_total = key.group_size;
  state.architecture =
      key.architecture == Architecture::ps ? SumArchitecture::ps : SumArchitecture::allreduce;
  set_placement(state, backend_facts(key.backend).on_gpu ? key.group_size : 0);
}

}  // namespace dynamiccl
