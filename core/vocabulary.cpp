#include "core/vocabulary.hpp"

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

}  // namespace dynamiccl
