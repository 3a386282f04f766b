#include "train/spec/synchronisation.hpp"

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

std::string switch_misfit(SumPlace sums, Synchronisation from, Synchronisation to) {
  const auto goes = [sums](Synchronisation each) {
    if (each == Synchronisation::bsp) return true;
    return sums == SumPlace::server ? is_asynchronous(each) : each == Synchronisation::local;
  };
  if (sums == SumPlace::neighbours)
    return "neighbours that begin to wait for all, or end it, are not offered (partial); take "
           "bsp-ps or bsp-a2a";
  if (from == to) return "it is what the cell begins with";
  if (goes(from) && goes(to)) return "";
  return sums == SumPlace::server
             ? "a server goes over among bsp, ssp, asp, staggered and backup (others: partial)"
             : "an all-reduce goes over between bsp and local (others: partial)";
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
    case Synchronisation::lag:
      return "LAG";
    case Synchronisation::adacomm:
      return "AdaComm";
    case Synchronisation::easgd:
      return "EASGD";
  }
  return "";
}

}  // namespace dynamiccl
