#include "train/spec/synchronisation.hpp"

namespace dynamiccl {

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

}  // namespace dynamiccl
