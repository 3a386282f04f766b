#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {

/// One spelling per value: TOML, command line, JSON, SQL and reports all go through these tables.
template <class E>
struct Named {
  E value;
  std::string_view name;
};
// Said out loud because compilers before C++20's rule for aggregates need it.
template <class E>
Named(E, const char*) -> Named<E>;

/// What separates the ranks from each other and from the host. A profile refines one of these.
enum class EnvironmentKind { bare_metal, singularity, single_docker, cross_docker };
enum class Backend { openmpi, mpich, cuda_aware_mpi, gloo, nccl };
enum class Architecture { ps, ring };
enum class Collective {
  broadcast,
  reduce,
  allreduce,
  allgather,
  reduce_scatter,
  gather,
  alltoall,
  sendrecv,
  push,       ///< PS: every worker's tensor goes to the server, which sums it
  pull,       ///< PS: the server's tensor goes to every worker
  push_pull,  ///< PS: push, then pull of the sum
  training,   ///< one step of data-parallel training, by the method the cell's algorithm names
  alltoallv   ///< all-to-all whose parts differ: 1, 2, ... ranks shares, see share_of_distance
};
enum class DataType { float32, float64, float16, bfloat16, int32 };
/// isolated: ranks are synchronised before every sample, a sample is one call.
/// batched: ranks are synchronised before every sample, a sample is the mean of k back-to-back
/// calls.
enum class Cadence { isolated, batched };
/// How one iteration's time is made from the ranks' times.
enum class RankAggregation { max, mean, min };
enum class CellStatus { planned, ok, failed, unsupported, timed_out, interrupted };
enum class LaunchStatus { running, ok, failed, timed_out, interrupted };
/// When a setting takes effect, hence what must be done again to change it.
enum class KnobScope { launch, communicator, call };

template <class E>
struct NameTable;

template <>
struct NameTable<EnvironmentKind> {
  static constexpr std::string_view what = "environment";
  static constexpr std::array entries{Named{EnvironmentKind::bare_metal, "bare-metal"},
                                      Named{EnvironmentKind::singularity, "singularity"},
                                      Named{EnvironmentKind::single_docker, "single-docker"},
                                      Named{EnvironmentKind::cross_docker, "cross-docker"}};
};
template <>
struct NameTable<Backend> {
  static constexpr std::string_view what = "backend";
  static constexpr std::array entries{Named{Backend::openmpi, "openmpi"},
                                      Named{Backend::mpich, "mpich"},
                                      Named{Backend::cuda_aware_mpi, "cuda-aware-mpi"},
                                      Named{Backend::gloo, "gloo"}, Named{Backend::nccl, "nccl"}};
};
template <>
struct NameTable<Architecture> {
  static constexpr std::string_view what = "architecture";
  static constexpr std::array entries{Named{Architecture::ps, "ps"},
                                      Named{Architecture::ring, "ring"}};
};
template <>
struct NameTable<Collective> {
  static constexpr std::string_view what = "collective";
  static constexpr std::array entries{Named{Collective::broadcast, "broadcast"},
                                      Named{Collective::reduce, "reduce"},
                                      Named{Collective::allreduce, "allreduce"},
                                      Named{Collective::allgather, "allgather"},
                                      Named{Collective::reduce_scatter, "reduce_scatter"},
                                      Named{Collective::gather, "gather"},
                                      Named{Collective::alltoall, "alltoall"},
                                      Named{Collective::sendrecv, "sendrecv"},
                                      Named{Collective::push, "push"},
                                      Named{Collective::pull, "pull"},
                                      Named{Collective::push_pull, "push_pull"},
                                      Named{Collective::training, "training"},
                                      Named{Collective::alltoallv, "alltoallv"}};
};
template <>
struct NameTable<DataType> {
  static constexpr std::string_view what = "datatype";
  static constexpr std::array entries{
      Named{DataType::float32, "float32"}, Named{DataType::float64, "float64"},
      Named{DataType::float16, "float16"}, Named{DataType::bfloat16, "bfloat16"},
      Named{DataType::int32, "int32"}};
};
template <>
struct NameTable<Cadence> {
  static constexpr std::string_view what = "cadence";
  static constexpr std::array entries{Named{Cadence::isolated, "isolated"},
                                      Named{Cadence::batched, "batched"}};
};
template <>
struct NameTable<RankAggregation> {
  static constexpr std::string_view what = "rank aggregation";
  static constexpr std::array entries{Named{RankAggregation::max, "max"},
                                      Named{RankAggregation::mean, "mean"},
                                      Named{RankAggregation::min, "min"}};
};
template <>
struct NameTable<CellStatus> {
  static constexpr std::string_view what = "cell status";
  static constexpr std::array entries{
      Named{CellStatus::planned, "planned"},     Named{CellStatus::ok, "ok"},
      Named{CellStatus::failed, "failed"},       Named{CellStatus::unsupported, "unsupported"},
      Named{CellStatus::timed_out, "timed_out"}, Named{CellStatus::interrupted, "interrupted"}};
};
template <>
struct NameTable<LaunchStatus> {
  static constexpr std::string_view what = "launch status";
  static constexpr std::array entries{
      Named{LaunchStatus::running, "running"}, Named{LaunchStatus::ok, "ok"},
      Named{LaunchStatus::failed, "failed"}, Named{LaunchStatus::timed_out, "timed_out"},
      Named{LaunchStatus::interrupted, "interrupted"}};
};
template <>
struct NameTable<KnobScope> {
  static constexpr std::string_view what = "knob scope";
  static constexpr std::array entries{Named{KnobScope::launch, "launch"},
                                      Named{KnobScope::communicator, "communicator"},
                                      Named{KnobScope::call, "call"}};
};

/// The canonical spelling of a value.
template <class E>
constexpr std::string_view name_of(E value) {
  for (const auto& entry : NameTable<E>::entries) {
    if (entry.value == value) return entry.name;
  }
  return "?";
}

template <class E>
std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const auto& entry : NameTable<E>::entries) names.emplace_back(entry.name);
  return names;
}

template <class E>
constexpr std::optional<E> find_named(std::string_view name) {
  for (const auto& entry : NameTable<E>::entries) {
    if (entry.name == name) return entry.value;
  }
  return std::nullopt;
}

/// @throws Error(input) listing the known names, with the nearest one suggested
template <class E>
E parse_named(std::string_view name) {
  if (const auto value = find_named<E>(name)) return *value;
  throw Error(ErrorKind::input, "unknown " + std::string(NameTable<E>::what) + " \"" +
                                    std::string(name) + "\"; " + suggestion(name, all_names<E>()));
}

/// Bytes of one element.
std::size_t element_bytes(DataType type);

/// Which collectives belong to which architecture: PS goes through a server rank, ring has none.
/// Training belongs to neither: its method decides (train/spec/training.hpp).
bool belongs_to(Collective collective, Architecture architecture);

/// Bus bandwidth factor f of nccl-tests doc/PERFORMANCE.md: busbw = size / time * f.
/// Unidirectional; push and pull count the server link's payload, factor (ranks - 1); 0 for one
/// rank where f has the factor (n-1).
double bus_bandwidth_factor(Collective collective, int ranks);

/// alltoallv: elements a rank sends to the one `distance` after it (0: itself). Of
/// `elements` in all, distance d gets d + 1 of ranks * (ranks + 1) / 2 shares, rounded down, and
/// the last one what is left: rank r sends to r + d what r + d receives from r, every rank sends
/// and receives `elements` in all, and the largest part is `ranks` times the smallest.
std::uint64_t share_of_distance(std::uint64_t elements, int ranks, int distance);
/// Shares in alltoallv: fewer elements than these leave a part empty.
std::uint64_t shares_of_alltoallv(int ranks);

}  // namespace dynamiccl
