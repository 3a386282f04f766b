#include "core/training/synchronisation.hpp"

#include "core/vocabulary/error.hpp"

namespace dynamiccl {

const SynchronisationPair& synchronisation_pair(Synchronisation synchronisation, SumPlace sums) {
  for (const auto& pair : kSynchronisationPairs)
    if (pair.synchronisation == synchronisation && pair.sums == sums) return pair;
  DYN_ASSERT(false, "every pair of synchronisation and place of the sum has a row");
}

WeightAgreement agreement_of(TrainingMethod method, Synchronisation synchronisation) {
  if (method_row(method).sums == SumPlace::neighbours) return WeightAgreement::never;
  return synchronisation == Synchronisation::bsp ? WeightAgreement::every_step
                                                 : WeightAgreement::at_synchronisation;
}

std::string synchronisation_words(TrainingMethod method, Synchronisation synchronisation) {
  const bool gossip = method_row(method).sums == SumPlace::neighbours;
  switch (synchronisation) {
    case Synchronisation::bsp:
      if (gossip) return "BSP with neighbours";
      return crosses_barrier(method) ? "BSP across the barrier" : "BSP";
    case Synchronisation::local:
      return gossip ? "Local-SGD with neighbours" : "Local-SGD";
    case Synchronisation::post_local:
      return "post-local SGD";
    case Synchronisation::ssp:
      return "SSP";
    case Synchronisation::asp:
      return "ASP";
    case Synchronisation::staggered:
      return "R2SP";
    case Synchronisation::backup:
      return "backup workers";
  }
  return "";
}

}  // namespace dynamiccl
