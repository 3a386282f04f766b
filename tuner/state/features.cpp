#include "tuner/state/features.hpp"

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

/// one number that is high where start-up cost decides and communication dominates.
void joint(const State& state, float* out) {
  const bool known = state.effective_size && state.group_size && state.c2c_ratio;
  out[0] = out[1] = 0;
  if (!known) return;
  out[0] = bounded(log2_of_size(as_number(*state.effective_size)) *
                   log2_of_count(*state.group_size) * log2_of_ratio(*state.c2c_ratio));
  out[1] = 1;
}

using enum FeatureType;
using enum FeatureRefresh;

constexpr std::array kTable{
    // Cluster.
    Feature{"cross_container", boolean, "", fixed, 0, 1, flag<&State::cross_container>},
    Feature{"container_runtime", categorical, "", fixed, 0, count_of<EnvironmentKind>,
            category<&State::runtime>},
    Feature{"intra_link", categorical, "", fixed, 0, count_of<IntraLink>,
            category<&State::intra_link>},
    Feature{"inter_link", categorical, "", fixed, 0, count_of<InterLink>,
            category<&State::inter_link>},
    Feature{"shared_memory", boolean, "", fixed, 0, 1, flag<&State::shared_memory>},
    Feature{"tier_max", categorical, "", fixed, 0, kTiers, tier},
    Feature{"tier_mix", vector, "share of rank pairs", fixed, 1, kTiers, tier_shares},
    Feature{"ranks_total", number, "log2/8", fixed, 0, 2,
            numeric<&State::ranks_total, log2_of_count>},
    Feature{"group_size", number, "log2/8", fixed, 0, 2,
            numeric<&State::group_size, log2_of_count>},
    Feature{"nodes", number, "log2/8", fixed, 0, 2, numeric<&State::nodes, log2_of_count>},
    Feature{"gpus_total", number, "log2/8", fixed, 1, 2,
            numeric<&State::gpus_total, log2_of_count>},
    Feature{"gpu_sharing", categorical, "", fixed, 1, count_of<SharingMode>,
            category<&State::sharing>},
    Feature{"topology", categorical, "", fixed, 2, count_of<Topology>, category<&State::topology>},
    Feature{"cluster_class", categorical, "", fixed, 2, count_of<ClusterClass>,
            category<&State::cluster_class>},
    Feature{"setting", categorical, "", fixed, 3, count_of<DeploymentSetting>,
            category<&State::setting>},
    Feature{"ina_active", boolean, "", fixed, 1, 1, flag<&State::ina_active>},
    Feature{"library", categorical, "", fixed, 0, count_of<CclLibrary>, category<&State::library>},
    // Job.
    Feature{"architecture", categorical, "", fixed, 2, count_of<SumArchitecture>,
            category<&State::architecture>},
    Feature{"schedule", categorical, "", fixed, 2, count_of<Schedule>, category<&State::schedule>},
    Feature{"sync", categorical, "", fixed, 3, count_of<SyncMode>, category<&State::sync>},
    Feature{"local_steps", number, "log2/8", fixed, 4, 2,
            numeric<&State::local_steps, log2_of_count>},
    Feature{"compression", categorical, "", fixed, 4, count_of<Compression>,
            category<&State::compression>},
    Feature{"wire_fraction", number, "wire/nominal", fixed, 4, 2,
            numeric<&State::wire_fraction, plain>},
    Feature{"parallelism", categorical, "", fixed, 3, count_of<ParallelismMode>,
            category<&State::parallelism>},
    Feature{"model_intensity", number, "log10(operations/parameter)/6", fixed, 3, 2,
            numeric<&State::model_intensity, log10_of>},
    Feature{"parameters", number, "log10/6", fixed, 4, 2, numeric<&State::parameters, log10_of>},
    Feature{"local_batch", number, "log2(samples)/8", fixed, 3, 2,
            numeric<&State::local_batch, log2_of_count>},
    Feature{"c2c_ratio", number, "log2/8", fixed, 2, 2, numeric<&State::c2c_ratio, log2_of_ratio>},
    Feature{"joint_size_ranks_c2c", number, "product", per_call, 3, 2, joint},
    Feature{"fault_tolerance", categorical, "", fixed, 5, count_of<FaultTolerance>,
            category<&State::fault_tolerance>},
    Feature{"pipeline_template", boolean, "", fixed, 5, 1, flag<&State::pipeline_template>},
    Feature{"pipeline_stage", number, "count/10", fixed, 5, 2, numeric<&State::stage, tenth>},
    // Call.
    Feature{"collective", categorical, "", per_call, 0, kCollectiveInputs, collective_input},
    Feature{"nominal_size", number, "log2(bytes)/16-1", per_call, 2, 2,
            numeric<&State::nominal_size, log2_of_size>},
    Feature{"effective_size", number, "log2(bytes)/16-1", per_call, 0, 2,
            numeric<&State::effective_size, log2_of_size>},
    Feature{"stage_role", categorical, "", per_call, 5, count_of<StageRole>,
            category<&State::stage_role>},
    Feature{"coflow_class", number, "count/10", per_call, 5, 2,
            numeric<&State::coflow_class, tenth>},
    Feature{"critical", boolean, "", per_call, 4, 1, flag<&State::critical>},
    Feature{"copy_time", number, "log10(us)/6", per_call, 3, 2,
            numeric<&State::copy_time, log10_of>},
    Feature{"latency_history", vector, "ln(latency/baseline)", per_call, 1, kHistoryLength + 1,
            history},
    // The tuner's own.
    Feature{"last_choice", vector, "algorithm, protocol, log2 channels, log2 threads", per_call, 2,
            5, last_choice},
    Feature{"cusum_score", number, "share of the alarm level", per_call, 2, 1,
            signal<&State::cusum_score>},
    Feature{"reconstruction_error", number, "standard deviations", per_call, 3, 1,
            signal<&State::reconstruction_error>},
    Feature{"congestion", number, "0 to 1", per_call, 3, 1, signal<&State::congestion>},
    Feature{"interference", number, "share of bandwidth lost", per_call, 1, 1,
            signal<&State::interference>},
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
    // The last of the least wanted: rbegin makes ties fall on the later row.
    const auto worst = std::max_element(
        kept.rbegin(), kept.rend(),
        [](const Feature* a, const Feature* b) { return a->drop_rank < b->drop_rank; });
    kept.erase(std::next(worst).base());
  }
  return kept;
}

}  // namespace dynamiccl
