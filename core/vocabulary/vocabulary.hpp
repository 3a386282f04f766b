#pragma once

#include <algorithm>
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

template <class E>
struct NameTable;

/// A list of enumerators as its text spells them, with `word` in the place of each `_`.
template <std::size_t kSize>
constexpr std::array<char, kSize> spelled_list(const char (&list)[kSize], char word) {
  std::array<char, kSize> text{};
  for (std::size_t i = 0; i < kSize; ++i) text[i] = list[i] == '_' ? word : list[i];
  return text;
}

/// The values of such a list, which count from 0. A `_` at a name's end keeps it from being a
/// keyword.
template <class E, std::size_t kCount>
constexpr std::array<Named<E>, kCount> named_values(std::string_view list, char word) {
  std::array<Named<E>, kCount> values{};
  for (std::size_t i = 0; i < kCount; ++i) {
    auto name = list.substr(0, list.find(','));
    list.remove_prefix(i + 1 < kCount ? name.size() + 2 : name.size());
    if (name.ends_with(word)) name.remove_suffix(1);
    values[i] = {static_cast<E>(i), name};
  }
  return values;
}

/// An enum and its names in one list: DYN_NAMED_ENUM(Place, "place", '-', on_host, in_container)
/// names "on-host" and "in-container".
#define DYN_NAMED_ENUM(Enum, what_it_is, word, ...)                                             \
  enum class Enum { __VA_ARGS__ };                                                              \
  template <>                                                                                   \
  struct NameTable<Enum> {                                                                      \
    static constexpr std::string_view what = what_it_is;                                        \
    static constexpr auto spelling = spelled_list(#__VA_ARGS__, word);                          \
    static constexpr std::size_t count = std::count(spelling.begin(), spelling.end(), ',') + 1; \
    static constexpr auto entries =                                                             \
        named_values<Enum, count>({spelling.data(), spelling.size() - 1}, word);                \
  }

/// What separates the ranks from each other and from the host. A profile refines one of these.
DYN_NAMED_ENUM(EnvironmentKind, "environment", '-', bare_metal, singularity, single_docker,
               cross_docker);
DYN_NAMED_ENUM(Backend, "backend", '-', openmpi, mpich, cuda_aware_mpi, gloo, nccl);
DYN_NAMED_ENUM(Architecture, "architecture", '-', ps, ring);
DYN_NAMED_ENUM(
    Collective, "collective", '_', broadcast, reduce, allreduce, allgather, reduce_scatter, gather,
    alltoall, sendrecv,
    push,        ///< PS: every worker's tensor goes to the server, which sums it
    pull,        ///< PS: the server's tensor goes to every worker
    push_pull,   ///< PS: push, then pull of the sum
    training,    ///< one step of data-parallel training, by the method the cell's algorithm names
    alltoallv,   ///< all-to-all whose parts differ, see uneven_parts()
    allgatherv,  ///< all-gather whose parts differ
    scatter,     ///< the root's parts, one to each rank
    barrier);    ///< nobody leaves before all have come; moves nothing

/// What the size of a call counts.
enum class SizeRule {
  whole,    ///< each buffer holds it
  parts,    ///< all ranks' parts together, which are of one size: rounded down
  uneven,   ///< the same, of parts that differ
  nothing,  ///< there is no data
};

/// What is true of a collective whichever library calls it: a row each, asked for by who plans,
/// lays out and reports.
struct CollectiveFacts {
  Collective collective;
  bool ring;  ///< belongs to the architecture whose ranks are alike
  bool ps;    ///< belongs to the one with a server, which is its root
  SizeRule size;
  bool reduces;         ///< takes another operation than the sum
  bool any_root;        ///< takes another root than rank 0
  bool library = true;  ///< libraries have a call of it
};
const CollectiveFacts& facts_of(Collective collective);

DYN_NAMED_ENUM(DataType, "datatype", '-', float32, float64, float16, bfloat16, int32);
/// isolated: ranks are synchronised before every sample, a sample is one call.
/// batched: ranks are synchronised before every sample, a sample is the mean of k back-to-back
/// calls.
DYN_NAMED_ENUM(Cadence, "cadence", '-', isolated, batched);
/// How one iteration's time is made from the ranks' times.
DYN_NAMED_ENUM(RankAggregation, "rank aggregation", '-', max, mean, min);
DYN_NAMED_ENUM(CellStatus, "cell status", '_', planned, ok, failed, unsupported, timed_out,
               interrupted);
DYN_NAMED_ENUM(LaunchStatus, "launch status", '_', running, ok, failed, timed_out, interrupted);
/// When a setting takes effect, hence what must be done again to change it.
DYN_NAMED_ENUM(KnobScope, "knob scope", '-', launch, communicator, call);

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
/// rank where f has the factor (n-1). Where parts differ: the mean over ranks of what is not their
/// own, of alltoallv's usual parts (bus_factor_of() knows others).
double bus_bandwidth_factor(Collective collective, int ranks);

}  // namespace dynamiccl
