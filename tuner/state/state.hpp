#pragma once

#include <array>
#include <optional>

#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "tuner/state/state_vocabulary.hpp"

namespace dynamiccl {

/// Calls that the latency history keeps (E-08).
inline constexpr int kHistoryLength = 8;
/// Tiers 0 to 4: same die, same switch, same rack, same zone, across datacentres (E-41).
inline constexpr int kTiers = 5;

/// Everything the agents may look at, typed. An empty optional means unknown, which the encoding
/// keeps apart from every value. `feature_table()` says what each field is and how it is encoded.
struct State {
  // Static: what surrounds the ranks. Refreshed when a communicator is made, not per call (E-62).
  std::optional<bool> cross_container;                 // E-01
  std::optional<EnvironmentKind> runtime;              // E-02, E-03, E-05
  std::optional<IntraLink> intra_link;                 // E-04, E-23, E-38
  std::optional<InterLink> inter_link;                 // E-24, E-39, E-40
  std::optional<bool> shared_memory;                   // part of the regime, beside E-01
  std::optional<DeploymentSetting> setting;            // E-10
  std::optional<ClusterClass> cluster_class;           // E-11
  std::optional<Topology> topology;                    // E-36, E-37
  std::optional<int> tier_max;                         // E-41, 0 to 4
  std::optional<std::array<double, kTiers>> tier_mix;  // E-42, shares of rank pairs, sum 1
  std::optional<bool> ina_active;                      // E-43, E-44
  std::optional<CclLibrary> library;                   // E-45
  std::optional<SharingMode> sharing;                  // E-49
  std::optional<int> gpus_total;                       // E-19
  std::optional<int> ranks_total;                      // E-35
  std::optional<int> group_size;                       // E-34
  std::optional<int> nodes;                            // of the group

  // Static: the job. Non-actionable, never changed by a policy (E-200 to E-204).
  std::optional<SumArchitecture> architecture;    // E-06, E-20, E-29
  std::optional<double> model_intensity;          // E-12, E-13: operations per parameter
  std::optional<double> parameters;               // E-52
  std::optional<int> local_batch;                 // E-14, samples
  std::optional<double> c2c_ratio;                // E-15
  std::optional<SyncMode> sync;                   // E-26, E-27
  std::optional<int> local_steps;                 // E-28, 0 under BSP
  std::optional<Compression> compression;         // E-30
  std::optional<double> wire_fraction;            // E-31: wire bytes / nominal bytes
  std::optional<Schedule> schedule;               // E-21, E-22, E-32
  std::optional<ParallelismMode> parallelism;     // E-51, E-54
  std::optional<FaultTolerance> fault_tolerance;  // E-53
  std::optional<bool> pipeline_template;          // E-50
  std::optional<int> stage;                       // E-46

  // Per call.
  std::optional<Collective> collective;  // E-09
  std::optional<Bytes> nominal_size;     // E-16, E-17
  std::optional<Bytes> effective_size;   // E-18: what goes over the wire
  std::optional<StageRole> stage_role;   // E-47
  std::optional<int> coflow_class;       // E-48
  std::optional<bool> critical;          // E-33
  std::optional<Micros> copy_time;       // E-07
  std::array<double, kHistoryLength>
      log_latency_history{};  // E-08: ln(latency / baseline), newest first
  int history_known = 0;      // entries of it that are set

  // Per call: what the tuner itself did and noticed.
  std::optional<std::array<double, 4>> last_choice;  // E-55: see feature table
  double cusum_score = 0;                            // E-57, alarm at 1
  double reconstruction_error = 0;                   // E-58, in standard deviations
  double congestion = 0;                             // E-59, 0 to 1
  double interference = 0;                           // E-60: share of bandwidth lost, 0 to 1
};

/// I = C / D: operations per sample over parameters (E-12, E-13, E-186).
/// @throws Error(input) unless both are positive
double model_intensity(double operations_per_sample, double parameters);

/// C2C = f(N) / (M I): communication to computation (E-15, E-186).
/// @param scheme_overhead f(N) of the scheme at this scale (E-187)
/// @throws Error(input) unless batch and intensity are positive
double c2c_ratio(double scheme_overhead, int local_batch, double intensity);

}  // namespace dynamiccl
