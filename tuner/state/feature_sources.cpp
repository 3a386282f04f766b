#include "tuner/state/feature_sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace dynamiccl {
namespace {

template <auto Member>
bool said(const State& state) {
  return (state.*Member).has_value();
}

bool watched(const State& state) { return state.watched; }

constexpr std::string_view kFacts = "facts of all ranks (regime)";
constexpr std::string_view kKey = "the call's key";
constexpr std::string_view kCell = "the cell";
constexpr std::string_view kNone = "";
constexpr std::string_view kNoJob = "a lone collective belongs to no job";
constexpr std::string_view kTrigger = "the trigger on the calls' latency";
constexpr std::string_view kNoTrigger = "each launch is short and measured by itself";

constexpr std::array kSources{
    FeatureSource{"cross_container", kFacts, kFacts, kNone, true, said<&State::cross_container>},
    FeatureSource{"container_runtime", kFacts, kFacts, kNone, true, said<&State::runtime>},
    FeatureSource{"intra_link", kFacts, kFacts, kNone, true, said<&State::intra_link>},
    FeatureSource{"inter_link", kFacts, kFacts, kNone, true, said<&State::inter_link>},
    FeatureSource{"shared_memory", kFacts, kFacts, kNone, true, said<&State::shared_memory>},
    FeatureSource{"tier_max", kFacts, kFacts, kNone, true, said<&State::tier_max>},
    FeatureSource{"tier_mix", "places of all pairs (regime)", "places of all pairs (regime)", kNone,
                  true, said<&State::tier_mix>},
    FeatureSource{"ranks_total", kKey, kKey, kNone, true, said<&State::ranks_total>},
    FeatureSource{"group_size", kKey, kKey, kNone, true, said<&State::group_size>},
    FeatureSource{"nodes", kKey, kKey, kNone, true, said<&State::nodes>},
    FeatureSource{"gpus_total", "the backend: a GPU per rank or none",
                  "the backend: a GPU per rank or none", kNone, true, said<&State::gpus_total>},
    FeatureSource{"gpu_sharing", kNone, kNone, "the regime says it of runs on GPUs alone", true,
                  said<&State::sharing>},
    FeatureSource{"topology", kNone, kNone, "no probe sees it; known where [machine] declares it",
                  false, said<&State::topology>},
    FeatureSource{"cluster_class", kFacts, kFacts, kNone, true, said<&State::cluster_class>},
    FeatureSource{"setting", "[machine]; one node: no federation",
                  "[machine]; one node: no federation", kNone, true, said<&State::setting>},
    FeatureSource{"ina_active", kFacts, kFacts, kNone, true, said<&State::ina_active>},
    FeatureSource{"library", kFacts, kFacts, kNone, true, said<&State::library>},
    FeatureSource{"architecture", "the method", kKey, kNone, false, said<&State::architecture>},
    FeatureSource{"schedule", "the method", kNone, kNoJob, true, said<&State::schedule>},
    FeatureSource{"sync", kCell, kNone, kNoJob, true, said<&State::sync>},
    FeatureSource{"local_steps", kCell, kNone, kNoJob, true, said<&State::local_steps>},
    FeatureSource{"compression", kCell, kNone, kNoJob, true, said<&State::compression>},
    FeatureSource{"wire_fraction", kCell, kNone, kNoJob, true, said<&State::wire_fraction>},
    FeatureSource{"parallelism", "data-parallel, as all training here", kNone,
                  "known where `[tune]` or --parallelism says it", true, said<&State::parallelism>},
    FeatureSource{"model_intensity", "the model's facts", kNone, kNoJob, true,
                  said<&State::model_intensity>},
    FeatureSource{"parameters", "the model's facts", kNone, kNoJob, true, said<&State::parameters>},
    FeatureSource{"local_batch", kCell, kNone, kNoJob, true, said<&State::local_batch>},
    FeatureSource{"c2c_ratio", "f(N) / (M I) of the cell", kNone, kNoJob, true,
                  said<&State::c2c_ratio>},
    FeatureSource{"joint_size_ranks_c2c", "product of three others", kNone, kNoJob, true,
                  [](const State& state) {
                    return state.effective_size && state.group_size && state.c2c_ratio;
                  }},
    FeatureSource{"fault_tolerance", "none, as all training here", kNone, kNoJob, true,
                  said<&State::fault_tolerance>},
    FeatureSource{"pipeline_template", "none, as all training here", kNone, kNoJob, false,
                  said<&State::pipeline_template>},
    FeatureSource{"pipeline_stage", "the only one", kNone, kNoJob, false, said<&State::stage>},
    FeatureSource{"collective", kKey, kKey, kNone, true, said<&State::collective>},
    FeatureSource{"nominal_size", kKey, kKey, kNone, true, said<&State::nominal_size>},
    FeatureSource{"effective_size", kKey, kKey, kNone, true, said<&State::effective_size>},
    FeatureSource{"stage_role", "none, without a pipeline", kNone, kNoJob, false,
                  said<&State::stage_role>},
    FeatureSource{"coflow_class", "0: gradients are one class", kNone, kNoJob, false,
                  said<&State::coflow_class>},
    FeatureSource{"critical", "the plan: the step waits for the last message", kNone, kNoJob, false,
                  said<&State::critical>},
    FeatureSource{"copy_time", "host memory: nothing is copied to a GPU",
                  "host memory: nothing is copied to a GPU", kNone, false, said<&State::copy_time>},
    FeatureSource{"latency_history", "the agent's last trials", "the agent's last trials", kNone,
                  false, [](const State& state) { return state.history_known > 0; }},
    FeatureSource{"last_choice", "the agent's last choice", "the agent's last choice", kNone, false,
                  said<&State::last_choice>},
    FeatureSource{"cusum_score", kTrigger, kNone, kNoTrigger, false, watched},
    FeatureSource{"reconstruction_error", kTrigger, kNone, kNoTrigger, false, watched},
    FeatureSource{"congestion", kTrigger, kNone, kNoTrigger, false, watched},
    FeatureSource{"interference", kTrigger, kNone, kNoTrigger, true, watched},
};

}  // namespace

std::span<const FeatureSource> feature_sources() { return kSources; }

std::string feature_sources_page() {
  const auto count = [](auto&& has) {
    return std::count_if(kSources.begin(), kSources.end(), has);
  };
  std::string page = fmt::format(
      "Of {} features a training cell with a tuner knows {} on CPUs, a cell that `tune` searches "
      "{}; the policy sees {}.\n\n"
      "| feature | in a training cell | in a cell that `tune` searches | else | policy |\n"
      "|---|---|---|---|---|\n",
      kSources.size(), count([](const FeatureSource& row) { return !row.training.empty(); }),
      count([](const FeatureSource& row) { return !row.tune.empty(); }),
      count([](const FeatureSource& row) { return row.in_policy; }));
  for (const FeatureSource& row : kSources)
    page += fmt::format(
        "| {} | {} | {} | {} | {} |\n", row.feature, row.training.empty() ? "-" : row.training,
        row.tune.empty() ? "-" : row.tune, row.absent, row.in_policy ? "sees it" : "-");
  return page;
}

}  // namespace dynamiccl
