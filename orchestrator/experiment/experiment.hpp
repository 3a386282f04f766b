#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "containers/cluster/cluster_options.hpp"
#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "core/wire/run_config.hpp"
#include "orchestrator/experiment/experiment_keys.hpp"
#include "orchestrator/experiment/expression.hpp"
#include "orchestrator/experiment/protocol.hpp"
#include "orchestrator/experiment/traffic_reader.hpp"
#include "orchestrator/experiment/tune_options.hpp"
#include "profiles/machine_declarations.hpp"
#include "profiles/profile.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {

/// One choice of sweep axes; what a dimension leaves open stays unset.
struct AxisChoice {
  std::optional<std::string> environment;
  std::optional<Backend> backend;
  std::optional<Architecture> architecture;
  std::optional<int> ranks;
  std::optional<DataType> datatype;
  std::optional<std::string> algorithm;
  std::optional<bool> in_place;
};

/// Values that vary together: one axis of [axes], or the zipped axes of one [[zip]].
using Dimension = std::vector<AxisChoice>;

/// A setting of a library to be swept: every value, "default" = leave it alone.
struct KnobAxis {
  /// "env.UCX_TLS", "mca.btl_tcp_eager_limit", "malloc.keep" (launch scope), "call.segment"
  std::string name;
  std::vector<std::string> values;
};

/// One [[work]] table: collectives x sizes, or training methods x settings. Empty lists mean "as
/// the axes say".
struct Work {
  std::vector<Architecture> architectures;
  std::vector<Backend> backends;
  std::vector<Collective> collectives;
  std::vector<Bytes> sizes;
  std::vector<DataType> datatypes;
  std::vector<std::string> algorithms;
  std::vector<bool> in_place;
  /// Settings of its calls (core/wire/work_settings.hpp), "call.op": "default" is the usual one.
  std::vector<KnobAxis> calls;
  std::vector<TrainingMethod> training;  ///< not empty: training cells, no collectives
  std::vector<KnobAxis> settings;        ///< of training: names as in train/spec/training.hpp
  TrafficWork
      traffic;  ///< with a model: its calls instead, each with as many ranks as its group has
};
/// Settings of such a cell, which say whose step it is of and how often a rank makes the call.
inline constexpr const char* kStep = "call.step";
inline constexpr const char* kStepCalls = "call.step_calls";

/// An experiment file, checked but not yet expanded.
struct Experiment {
  std::string name;
  std::string description;
  std::uint64_t seed = kUsualSeed;
  std::string source_path;
  std::string source_text;
  std::vector<std::string> overrides;
  std::vector<Dimension> dimensions;
  std::vector<Work> work;
  std::vector<Expression> where;    ///< all must hold
  std::vector<Expression> exclude;  ///< none may hold
  RunProtocol protocol;
  std::map<Backend, std::vector<KnobAxis>> knobs;
  MachineDeclarations machine;            ///< of [machine]
  std::optional<ClusterOptions> cluster;  ///< the ranks' machines; nullopt = this one
  /// Every profile the axes name, with the experiment's overrides applied.
  std::map<std::string, EnvironmentProfile> profiles;
  std::vector<std::string> notes;  ///< "file:line:col: ...": what reads but should be written anew
};

/// Parses and checks an experiment.
/// @param source file name for messages
/// @param overrides `key=value` of --set, applied before anything is read
/// @param profiles the known profiles by name
/// @throws Error(input) with one `file:line:col: ...` line per mistake
Experiment parse_experiment(const std::string& text, const std::string& source,
                            const std::vector<std::string>& overrides,
                            const std::map<std::string, EnvironmentProfile>& profiles);

/// Reads the file and parses it.
/// @throws Error(input) when it cannot be read, and as parse_experiment
Experiment read_experiment(const std::string& path, const std::vector<std::string>& overrides,
                           const std::map<std::string, EnvironmentProfile>& profiles);

/// [tune] of an experiment that was read.
/// @throws Error(input) when it names an environment that the experiment's axes do not have
TuneOptions tune_options_of(const Experiment& experiment);

}  // namespace dynamiccl
