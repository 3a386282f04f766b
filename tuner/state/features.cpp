#include "tuner/state/features.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/vocabulary/digest.hpp"

namespace dynamiccl {
namespace {

constexpr double kLimit = 4;

float bounded(double value) {
  if (std::isnan(value)) return 0;
  return static_cast<float>(std::clamp(value, -kLimit, kLimit));
}

double as_number(double value) { return value; }
double as_number(int value) { return value; }
double as_number(Bytes value) { return static_cast<double>(value.count()); }
double as_number(Micros value) { return value.count(); }

// Scales bring usual values near [-1, 1].
double log2_of_size(double bytes) { return std::log2(std::max(bytes, 1.0)) / 16 - 1; }
double log2_of_count(double count) { return std::log2(std::max(count, 1.0)) / 8; }
double log10_of(double value) { return std::log10(std::max(value, 1.0)) / 6; }
double log2_of_ratio(double ratio) { return std::log2(std::max(ratio, 1e-6)) / 8; }
double plain(double value) { return value; }
double tenth(double value) { return value / 10; }

template <auto Member>
void flag(const State& state, float* out) {
  const auto& value = state.*Member;
  out[0] = !value ? 0.0F : *value ? 1.0F : -1.0F;
}

template <auto Member>
void category(const State& state, float* out) {
  const auto& value = state.*Member;
  using Enum = typename std::remove_cvref_t<decltype(value)>::value_type;
  for (const auto& entry : NameTable<Enum>::entries) *out++ = value == entry.value ? 1.0F : 0.0F;
}

/// Those that came later count as one of them (set_task()): trained policies keep their inputs.
constexpr int kCollectiveInputs = static_cast<int>(Collective::alltoallv);
void collective_input(const State& state, float* out) {
  std::fill_n(out, kCollectiveInputs, 0.0F);
  const int input = state.collective ? static_cast<int>(*state.collective) : kCollectiveInputs;
  if (input < kCollectiveInputs) out[input] = 1.0F;
}

template <auto Member, double (*Scale)(double)>
void numeric(const State& state, float* out) {
  const auto& value = state.*Member;
  out[0] = value ? bounded(Scale(as_number(*value))) : 0.0F;
  out[1] = value ? 1.0F : 0.0F;
}

template <auto Member>
void signal(const State& state, float* out) {
  out[0] = bounded(state.*Member);
}

template <class Enum>
constexpr int count_of = static_cast<int>(NameTable<Enum>::entries.size());

void tier(const State& state, float* out) {
  for (int i = 0; i < kTiers; ++i) out[i] = state.tier_max == i ? 1.0F : 0.0F;
}

void tier_shares(const State& state, float* out) {
  for (int i = 0; i < kTiers; ++i)
    out[i] = state.tier_mix ? bounded((*state.tier_mix)[static_cast<std::size_t>(i)]) : 0.0F;
}

void history(const State& state, float* out) {
  for (int i = 0; i < kHistoryLength; ++i)
    out[i] = i < state.history_known
                 ? bounded(state.log_latency_history[static_cast<std::size_t>(i)])
                 : 0.0F;
  out[kHistoryLength] = static_cast<float>(state.history_known) / kHistoryLength;
}

void last_choice(const State& state, float* out) {
  for (std::size_t i = 0; i < 4; ++i)
    out[i] = state.last_choice ? bounded((*state.last_choice)[i]) : 0.0F;
  out[4] = state.last_choice ? 1.0F : 0.0F;
}

bool has_joint(const State& state) {
  return state.effective_size && state.group_size && state.c2c_ratio;
}

/// One number that is high where start-up cost decides and communication dominates.
void joint(const State& state, float* out) {
  out[0] = out[1] = 0;
  if (!has_joint(state)) return;
  out[0] = bounded(log2_of_size(as_number(*state.effective_size)) *
                   log2_of_count(*state.group_size) * log2_of_ratio(*state.c2c_ratio));
  out[1] = 1;
}

using enum FeatureType;
using enum FeatureRefresh;

template <auto Member>
bool said(const State& state) {
  return (state.*Member).has_value();
}

bool watched(const State& state) { return state.watched; }

template <auto Member>
constexpr Feature flagged(std::string_view name, FeatureRefresh refresh, int drop_rank,
                          FeatureSource source) {
  return {name, boolean, "", refresh, drop_rank, 1, flag<Member>, source, said<Member>};
}

template <auto Member>
constexpr Feature one_of(std::string_view name, FeatureRefresh refresh, int drop_rank,
                         FeatureSource source) {
  using Enum = typename std::remove_cvref_t<decltype(State{}.*Member)>::value_type;
  return {name,           categorical,      "",     refresh,     drop_rank,
          count_of<Enum>, category<Member>, source, said<Member>};
}

template <auto Member, double (*Scale)(double)>
constexpr Feature number_of(std::string_view name, std::string_view unit, FeatureRefresh refresh,
                            int drop_rank, FeatureSource source) {
  return {name, number, unit, refresh, drop_rank, 2, numeric<Member, Scale>, source, said<Member>};
}

/// What the trigger makes of the calls' latency.
template <auto Member>
constexpr Feature signalled(std::string_view name, std::string_view unit, int drop_rank,
                            bool in_policy) {
  return {name,
          number,
          unit,
          per_call,
          drop_rank,
          1,
          signal<Member>,
          {"the trigger on the calls' latency", "", "each launch is short and measured by itself",
           in_policy},
          watched};
}

/// Known alike in a training cell and in a cell that `tune` searches.
constexpr FeatureSource both(std::string_view where, bool in_policy = true) {
  return {where, where, "", in_policy};
}

/// Known in a training cell alone.
constexpr FeatureSource of_job(std::string_view where, bool in_policy = true) {
  return {where, "", "a lone collective belongs to no job", in_policy};
}

constexpr std::string_view kNoneHere = "none, as all training here";
constexpr FeatureSource kFacts = both("facts of all ranks (regime)");
constexpr FeatureSource kKey = both("the call's key");
constexpr FeatureSource kCell = of_job("the cell");

constexpr std::array kTable{
    // Cluster.
    flagged<&State::cross_container>("cross_container", fixed, 0, kFacts),
    one_of<&State::runtime>("container_runtime", fixed, 0, kFacts),
    one_of<&State::intra_link>("intra_link", fixed, 0, kFacts),
    one_of<&State::inter_link>("inter_link", fixed, 0, kFacts),
    flagged<&State::shared_memory>("shared_memory", fixed, 0, kFacts),
    Feature{"tier_max", categorical, "", fixed, 0, kTiers, tier, kFacts, said<&State::tier_max>},
    Feature{"tier_mix", vector, "share of rank pairs", fixed, 1, kTiers, tier_shares,
            both("places of all pairs (regime)"), said<&State::tier_mix>},
    number_of<&State::ranks_total, log2_of_count>("ranks_total", "log2/8", fixed, 0, kKey),
    number_of<&State::group_size, log2_of_count>("group_size", "log2/8", fixed, 0, kKey),
    number_of<&State::nodes, log2_of_count>("nodes", "log2/8", fixed, 0, kKey),
    number_of<&State::gpus_total, log2_of_count>("gpus_total", "log2/8", fixed, 1,
                                                 both("the backend: a GPU per rank or none")),
    one_of<&State::sharing>("gpu_sharing", fixed, 1,
                            {"", "", "the regime says it of runs on GPUs alone", true}),
    one_of<&State::topology>(
        "topology", fixed, 2,
        {"", "", "no probe sees it; known where [machine] declares it", false}),
    one_of<&State::cluster_class>("cluster_class", fixed, 2, kFacts),
    one_of<&State::setting>("setting", fixed, 3, both("[machine]; one node: no federation")),
    flagged<&State::ina_active>("ina_active", fixed, 1, kFacts),
    one_of<&State::library>("library", fixed, 0, kFacts),
    // Job.
    one_of<&State::architecture>("architecture", fixed, 2,
                                 {"the method", "the call's key", "", false}),
    one_of<&State::schedule>("schedule", fixed, 2, of_job("the method")),
    one_of<&State::sync>("sync", fixed, 3, kCell),
    number_of<&State::local_steps, log2_of_count>("local_steps", "log2/8", fixed, 4, kCell),
    one_of<&State::compression>("compression", fixed, 4, kCell),
    number_of<&State::wire_fraction, plain>("wire_fraction", "wire/nominal", fixed, 4, kCell),
    one_of<&State::parallelism>("parallelism", fixed, 3,
                                {"data-parallel, as all training here", "",
                                 "known where `[tune]` or --parallelism says it", true}),
    number_of<&State::model_intensity, log10_of>("model_intensity", "log10(operations/parameter)/6",
                                                 fixed, 3, of_job("the model's facts")),
    number_of<&State::parameters, log10_of>("parameters", "log10/6", fixed, 4,
                                            of_job("the model's facts")),
    number_of<&State::local_batch, log2_of_count>("local_batch", "log2(samples)/8", fixed, 3,
                                                  kCell),
    number_of<&State::c2c_ratio, log2_of_ratio>("c2c_ratio", "log2/8", fixed, 2,
                                                of_job("f(N) / (M I) of the cell")),
    Feature{"joint_size_ranks_c2c", number, "product", per_call, 3, 2, joint,
            of_job("product of three others"), has_joint},
    one_of<&State::fault_tolerance>("fault_tolerance", fixed, 5, of_job(kNoneHere)),
    flagged<&State::pipeline_template>("pipeline_template", fixed, 5, of_job(kNoneHere, false)),
    number_of<&State::stage, tenth>("pipeline_stage", "count/10", fixed, 5,
                                    of_job("the only one", false)),
    // Call.
    Feature{"collective", categorical, "", per_call, 0, kCollectiveInputs, collective_input, kKey,
            said<&State::collective>},
    number_of<&State::nominal_size, log2_of_size>("nominal_size", "log2(bytes)/16-1", per_call, 2,
                                                  kKey),
    number_of<&State::effective_size, log2_of_size>("effective_size", "log2(bytes)/16-1", per_call,
                                                    0, kKey),
    one_of<&State::stage_role>("stage_role", per_call, 5,
                               of_job("none, without a pipeline", false)),
    number_of<&State::coflow_class, tenth>("coflow_class", "count/10", per_call, 5,
                                           of_job("0: gradients are one class", false)),
    flagged<&State::critical>("critical", per_call, 4,
                              of_job("the plan: the step waits for the last message", false)),
    number_of<&State::copy_time, log10_of>("copy_time", "log10(us)/6", per_call, 3,
                                           both("host memory: nothing is copied to a GPU", false)),
    Feature{"latency_history", vector, "ln(latency/baseline)", per_call, 1, kHistoryLength + 1,
            history, both("the agent's last trials", false),
            [](const State& state) { return state.history_known > 0; }},
    // The tuner's own.
    Feature{"last_choice", vector, "algorithm, protocol, log2 channels, log2 threads", per_call, 2,
            5, last_choice, both("the agent's last choice", false), said<&State::last_choice>},
    signalled<&State::cusum_score>("cusum_score", "share of the alarm level", 2, false),
    signalled<&State::reconstruction_error>("reconstruction_error", "standard deviations", 3,
                                            false),
    signalled<&State::congestion>("congestion", "0 to 1", 3, false),
    signalled<&State::interference>("interference", "share of bandwidth lost", 1, true),
};

}  // namespace

double model_intensity(double operations_per_sample, double parameters) {
  if (!(operations_per_sample > 0) || !(parameters > 0))
    throw Error(ErrorKind::input,
                "model intensity needs operations per sample and parameters above zero");
  return operations_per_sample / parameters;
}

double c2c_ratio(double scheme_overhead, int local_batch, double intensity) {
  if (local_batch < 1 || !(intensity > 0))
    throw Error(ErrorKind::input,
                "the C2C ratio needs a batch of at least 1 and an intensity "
                "above zero");
  return scheme_overhead / (local_batch * intensity);
}

std::span<const Feature> feature_table() { return kTable; }

int state_width() {
  static const int kWidth = [] {
    int sum = 0;
    for (const Feature& feature : kTable) sum += feature.width;
    return sum;
  }();
  return kWidth;
}

Eigen::VectorXf encode(const State& state) {
  Eigen::VectorXf vector(state_width());
  float* out = vector.data();
  for (const Feature& feature : kTable) {
    feature.encode(state, out);
    out += feature.width;
  }
  return vector;
}

const std::string& feature_digest() {
  static const std::string kDigest = [] {
    std::string text;
    for (const Feature& feature : kTable) {
      text += feature.name;
      text += ' ' + std::string(name_of(feature.type)) + ' ' + std::to_string(feature.width) + ' ';
      text += feature.unit;
      text += '\n';
    }
    return stable_id(text);
  }();
  return kDigest;
}

std::vector<const Feature*> keep_features(std::vector<const Feature*> kept, int columns) {
  const auto total = [&] {
    int sum = 0;
    for (const Feature* feature : kept) sum += feature->width;
    return sum;
  };
  while (!kept.empty() && total() > columns) {
    // Of the least wanted columns the last one goes: from rbegin on, the later of equals is found.
    const auto worst = std::max_element(
        kept.rbegin(), kept.rend(),
        [](const Feature* a, const Feature* b) { return a->drop_rank < b->drop_rank; });
    kept.erase(std::next(worst).base());
  }
  return kept;
}

std::string feature_sources_page() {
  const auto count = [](auto&& has) { return std::count_if(kTable.begin(), kTable.end(), has); };
  std::string page = fmt::format(
      "Of {} features a training cell with a tuner knows {} on CPUs, a cell that `tune` searches "
      "{}; the policy sees {}.\n\n"
      "| feature | in a training cell | in a cell that `tune` searches | else | policy |\n"
      "|---|---|---|---|---|\n",
      kTable.size(), count([](const Feature& row) { return !row.source.training.empty(); }),
      count([](const Feature& row) { return !row.source.tune.empty(); }),
      count([](const Feature& row) { return row.source.in_policy; }));
  for (const Feature& row : kTable)
    page += fmt::format("| {} | {} | {} | {} | {} |\n", row.name,
                        row.source.training.empty() ? "-" : row.source.training,
                        row.source.tune.empty() ? "-" : row.source.tune, row.source.absent,
                        row.source.in_policy ? "sees it" : "-");
  return page;
}

}  // namespace dynamiccl
