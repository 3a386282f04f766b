#pragma once

#include <array>
#include <optional>

#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "tuner/state/state_vocabulary.hpp"

namespace dynamiccl {

/// Calls that the latency history keeps.
inline constexpr int kHistoryLength = 8;
/// Tiers 0 to 4: same die, same switch, same rack, same zone, across datacentres.
inline constexpr int kTiers = 5;

/// Everything the agents may look at, typed. An empty optional means unknown, which the encoding
/// keeps apart from every value. `feature_table()` says what each field is and how it is encoded.
struct State {
  // Static: what surrounds the ranks. Refreshed when a communicator is made, not per call.
  std::optional<bool> cross_container;
  std::optional<EnvironmentKind> runtime;
  std::optional<IntraLink> intra_link;
  std::optional<InterLink> inter_link;
  std::optional<bool> shared_memory;  // part of the regime
  std::optional<DeploymentSetting> setting;
  std::optional<ClusterClass> cluster_class;
  std::optional<Topology> topology;
  std::optional<int> tier_max;                         // 0 to 4
  std::optional<std::array<double, kTiers>> tier_mix;  // shares of rank pairs, sum 1
  std::optional<bool> ina_active;
  std::optional<CclLibrary> library;
  std::optional<SharingMode> sharing;
  std::optional<int> gpus_total;
  std::optional<int> ranks_total;
  std::optional<int> group_size;
  std::optional<int> nodes;  // of the group

  // Static: the job. Non-actionable, never changed by a policy.
  std::optional<SumArchitecture> architecture;
  std::optional<double> model_intensity;  // operations per parameter
  std::optional<double> parameters;
  std::optional<int> local_batch;  // samples
  std::optional<double> c2c_ratio;
  std::optional<SyncMode> sync;
  std::optional<int> local_steps;  // 0 under BSP
  std::optional<Compression> compression;
  std::optional<double> wire_fraction;  // wire bytes / nominal bytes
  std::optional<Schedule> schedule;
  std::optional<ParallelismMode> parallelism;
  std::optional<FaultTolerance> fault_tolerance;
  std::optional<bool> pipeline_template;
  std::optional<int> stage;

  // Per call.
  std::optional<Collective> collective;
  std::optional<Bytes> nominal_size;
  std::optional<Bytes> effective_size;  // what goes over the wire
  std::optional<StageRole> stage_role;
  std::optional<int> coflow_class;
  std::optional<bool> critical;
  std::optional<Micros> copy_time;
  std::array<double, kHistoryLength> log_latency_history{};  // ln(latency / baseline), newest first
  int history_known = 0;                                     // entries of it that are set

  // Per call: what the tuner itself did and noticed.
  std::optional<std::array<double, 4>> last_choice;  // see feature table
  bool watched = false;             // a trigger looks on: the four signals below mean something
  double cusum_score = 0;           // alarm at 1
  double reconstruction_error = 0;  // in standard deviations
  double congestion = 0;            // 0 to 1
  double interference = 0;          // share of bandwidth lost, 0 to 1
};

/// I = C / D: operations per sample over parameters.
/// @throws Error(input) unless both are positive
double model_intensity(double operations_per_sample, double parameters);

/// C2C = f(N) / (M I): communication to computation.
/// @param scheme_overhead f(N) of the scheme at this scale
/// @throws Error(input) unless batch and intensity are positive
double c2c_ratio(double scheme_overhead, int local_batch, double intensity);

}  // namespace dynamiccl
