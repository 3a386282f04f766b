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

const CollectiveFacts& facts_of(Collective collective) {
  using enum Collective;
  using enum SizeRule;
  // Training is no call: its method decides about the architecture.
  static constexpr std::array kFacts{
      CollectiveFacts{broadcast, true, true, whole, false, true},
      CollectiveFacts{reduce, true, false, whole, true, true},
      CollectiveFacts{allreduce, true, false, whole, true, false},
      CollectiveFacts{allgather, true, false, parts, false, false},
      CollectiveFacts{reduce_scatter, true, false, parts, true, false},
      CollectiveFacts{gather, false, true, parts, false, false},
      CollectiveFacts{alltoall, true, false, parts, false, false},
      CollectiveFacts{sendrecv, true, false, whole, false, false, false},
      CollectiveFacts{push, false, true, whole, false, false, false},
      CollectiveFacts{pull, false, true, whole, false, false, false},
      CollectiveFacts{push_pull, false, true, whole, false, false, false},
      CollectiveFacts{training, false, false, whole, false, false},
      CollectiveFacts{alltoallv, true, false, uneven, false, false},
      CollectiveFacts{allgatherv, true, false, uneven, false, false},
      CollectiveFacts{scatter, true, true, parts, false, true},
      CollectiveFacts{barrier, true, false, nothing, false, false},
  };
  static_assert(kFacts.size() == NameTable<Collective>::entries.size());
  const auto& facts = kFacts.at(static_cast<std::size_t>(collective));
  DYN_ASSERT(facts.collective == collective, "rows stand in the order of the enumerators");
  return facts;
}

bool belongs_to(Collective collective, Architecture architecture) {
  const CollectiveFacts& facts = facts_of(collective);
  return architecture == Architecture::ps ? facts.ps : facts.ring;
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
    case Collective::allgatherv:
    case Collective::scatter:
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
    case Collective::barrier:
    case Collective::training:
      return 0.0;
  }
  return 1.0;
}

}  // namespace dynamiccl
