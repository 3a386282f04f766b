#include "train/spec/payload.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dynamiccl {
namespace {

constexpr std::uint64_t kFloat = 4;

/// Payloads that cross the busiest link in a round, in units of what a worker gives to the library.
double exchanged_payloads(const TrainingSpec& spec, int workers) {
  const double n = workers;
  switch (codec_row(spec.compression).sum) {
    case CodecSum::reduced:
      return 2 * (n - 1) / n;
    case CodecSum::gathered:
      return n - 1;
    case CodecSum::merged:  // the first worker hands the result to all that merged into its frame
      return std::ceil(std::log2(n));
  }
  return 0;
}

}  // namespace

double parameter_volumes(const TrainingSpec& spec, int workers) {
  const double n = workers;
  const auto volumes = [&] {
    switch (method_row(spec.method).sums) {
      case SumPlace::all_reduce:
        return 2 * (n - 1) / n;
      case SumPlace::neighbours:
        // One round says nothing of pairs that change: with an odd number one worker has none.
        if (spec.topology == PeerGraph::random_pairs) return workers % 2 == 0 ? 1 : (n - 1) / n;
        return static_cast<double>(mixing_of(spec.topology, workers, 0, 0, 0).to.size());
      case SumPlace::server:
        break;
    }
    if (spec.server_sums == ServerSums::chief) return n > 1 ? 4.0 : 2.0;
    if (spec.group_size > 1) {
      // As many as there are groups, or what a group's first worker sends: its part of a ring's
      // sum, the sum to the server, and the answer to each of the others.
      const double g = spec.group_size;
      return 2 * std::max(n / g, 2 * (g - 1) / g + 1 + (g - 1));
    }
    const double s = servers_of(spec, workers);
    return spec.placement == ServerPlacement::colocated ? (n + s - 2) / s
                                                        : 2 * std::max(1.0, n / s);
  };
  return volumes() / round_steps(spec);
}

double c2c_predicted(const TrainingSpec& spec, int workers, std::optional<double> exchanges) {
  const double intensity = facts_of(spec.model, spec.sequence).intensity();
  const double first = 1.0 / round_steps(spec);
  const double volumes = parameter_volumes(spec, workers) * exchanges.value_or(first) / first;
  return volumes / (static_cast<double>(spec.batch) * intensity);
}

Payload payload_of(const TrainingSpec& spec) {
  Payload payload;
  const std::uint64_t count = facts_of(spec.model, spec.sequence).parameters;
  payload.nominal_bytes = count * kFloat;
  payload.effective_bytes = payload.nominal_bytes;
  const CodecRow& row = codec_row(spec.compression);
  if (row.kind == CodecKind::low_rank) {
    payload.effective_bytes = std::nullopt;
  } else if (row.codec != Codec::none) {
    constexpr auto kAfterWarmup = std::numeric_limits<std::uint64_t>::max();
    payload.effective_bytes =
        codec_bytes(codec_settings(spec), static_cast<std::size_t>(count), 1, kAfterWarmup);
  }
  payload.exchanges = 1.0 / round_steps(spec);
  if (is_asynchronous(spec.synchronisation)) {
    payload.firing = Firing::push_pull;
  } else if (has_local_steps(spec.synchronisation)) {
    payload.firing = Firing::every_round;
  }
  return payload;
}

std::optional<double> c2c_effective(const TrainingSpec& spec, int workers) {
  const double plain = c2c_predicted(spec, workers);
  if (spec.compression == Codec::none && spec.group_compression == Codec::none) return plain;
  const Payload payload = payload_of(spec);
  // Which link of groups is the busiest depends on the codecs of both levels.
  if (!payload.effective_bytes || spec.group_size > 1) return std::nullopt;
  switch (method_row(spec.method).sums) {
    case SumPlace::server:
      return plain * (payload.share() + 1) / 2;  // as much is pushed as is answered
    case SumPlace::neighbours:
      return plain * payload.share();
    case SumPlace::all_reduce:
      break;
  }
  TrainingSpec whole = spec;
  whole.compression = Codec::none;
  const double volumes = parameter_volumes(whole, workers) * round_steps(spec);
  return volumes > 0 ? plain * payload.share() * exchanged_payloads(spec, workers) / volumes
                     : plain;
}

}  // namespace dynamiccl
