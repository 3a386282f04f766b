#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

std::size_t element_bytes(DataType type) {
  switch (type) {
    case DataType::float64:
      return 8;
    case DataType::float16:
    case DataType::bfloat16:
      return 2;
    case DataType::float32:
    case DataType::int32:
      return 4;
  }
  return 4;
}

bool belongs_to(Collective collective, Architecture architecture) {
  switch (collective) {
    case Collective::push:
    case Collective::pull:
    case Collective::push_pull:
    case Collective::gather:
      return architecture == Architecture::ps;
    case Collective::broadcast:
      return true;
    case Collective::training:
      return false;
    default:
      return architecture == Architecture::ring;
  }
}

double bus_bandwidth_factor(Collective collective, int ranks) {
  const double n = ranks;
  switch (collective) {
    case Collective::allreduce:
      return 2.0 * (n - 1) / n;
    case Collective::allgather:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::alltoall:
      return (n - 1) / n;
    case Collective::alltoallv:
      return 1 - 2 / (n * (n + 1));
    case Collective::push:
    case Collective::pull:
    case Collective::push_pull:
      return n - 1;
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::sendrecv:
      return 1.0;
    case Collective::training:
      return 0.0;
  }
  return 1.0;
}

std::uint64_t shares_of_alltoallv(int ranks) {
  const auto n = static_cast<std::uint64_t>(ranks);
  return n * (n + 1) / 2;
}

std::uint64_t share_of_distance(std::uint64_t elements, int ranks, int distance) {
  const std::uint64_t shares = shares_of_alltoallv(ranks);
  const auto part = [&](int d) {
    return elements / shares * static_cast<std::uint64_t>(d + 1) +
           elements % shares * static_cast<std::uint64_t>(d + 1) / shares;
  };
  if (distance + 1 < ranks) return part(distance);
  std::uint64_t rest = elements;
  for (int d = 0; d + 1 < ranks; ++d) rest -= part(d);
  return rest;
}

}  // namespace dynamiccl
