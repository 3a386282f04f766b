#pragma once

#include <array>
#include <string>
#include <string_view>

#include "core/vocabulary/vocabulary.hpp"
#include "train/spec/training_method.hpp"

namespace dynamiccl {

/// When workers wait for each other: the axis beside a method's schedule and its place of the sum.
enum class Synchronisation {
  bsp,         ///< in every step
  local,       ///< every `local_steps` steps, for the mean of their weights (Local-SGD)
  post_local,  ///< as bsp for the first `local_after` steps, then as local
  ssp,         ///< while one is more than `staleness` steps ahead of the slowest
  asp,         ///< never
  staggered,   ///< for its turn: a server takes one gradient of each, in their order (R2SP)
  backup,      ///< in every step, for all but `backups` of them; what comes later is dropped
  lag,         ///< in every step, but who has nothing new sends no gradient (LAG)
  adacomm,     ///< as local, with rounds that shorten as the loss falls (AdaComm)
  easgd        ///< every `local_steps` steps, each drawn a part of the way to a centre (EASGD)
};

template <>
struct NameTable<Synchronisation> {
  static constexpr std::string_view what = "synchronisation";
  static constexpr std::array entries{Named{Synchronisation::bsp, "bsp"},
                                      Named{Synchronisation::local, "local"},
                                      Named{Synchronisation::post_local, "post-local"},
                                      Named{Synchronisation::ssp, "ssp"},
                                      Named{Synchronisation::asp, "asp"},
                                      Named{Synchronisation::staggered, "staggered"},
                                      Named{Synchronisation::backup, "backup"},
                                      Named{Synchronisation::lag, "lag"},
                                      Named{Synchronisation::adacomm, "adacomm"},
                                      Named{Synchronisation::easgd, "easgd"}};
};

/// What workers share of their weights.
enum class WeightAgreement {
  every_step,          ///< the same bits after each
  at_synchronisation,  ///< the same bits where they meet
  never                ///< each has its own
};

/// Whether a synchronisation can be had with a place of the sum.
enum class PairFit {
  legal,
  partial,  ///< sensible in parts, which are not offered
  illegal
};

/// One pair, and why it cannot be had; empty where it can.
struct SynchronisationPair {
  Synchronisation synchronisation;
  SumPlace sums;
  PairFit fit;
  std::string_view reason;
};

// Every pair has a row: a test asks.
inline constexpr std::array kSynchronisationPairs{
    SynchronisationPair{Synchronisation::bsp, SumPlace::server, PairFit::legal, ""},
    SynchronisationPair{Synchronisation::bsp, SumPlace::all_reduce, PairFit::legal, ""},
    SynchronisationPair{Synchronisation::bsp, SumPlace::neighbours, PairFit::legal, ""},
    SynchronisationPair{Synchronisation::local, SumPlace::server, PairFit::legal, ""},
    SynchronisationPair{Synchronisation::local, SumPlace::all_reduce, PairFit::legal, ""},
    SynchronisationPair{Synchronisation::local, SumPlace::neighbours, PairFit::legal, ""},
    SynchronisationPair{
        Synchronisation::post_local, SumPlace::server, PairFit::partial,
        "post-local switches from sums of gradients to means of weights, and a server would have "
        "to switch with its workers: take a method that all-reduces"},
    SynchronisationPair{Synchronisation::post_local, SumPlace::all_reduce, PairFit::legal, ""},
    SynchronisationPair{
        Synchronisation::post_local, SumPlace::neighbours, PairFit::illegal,
        "post-local begins with steps that all workers do together, and neighbours never do"},
    SynchronisationPair{Synchronisation::ssp, SumPlace::server, PairFit::legal, ""},
    SynchronisationPair{
        Synchronisation::ssp, SumPlace::all_reduce, PairFit::partial,
        "bounded staleness needs somebody who answers each worker by itself, and an all-reduce "
        "needs all of them at once: only a fixed delay of every sum is left of it; take bsp-ps"},
    SynchronisationPair{
        Synchronisation::ssp, SumPlace::neighbours, PairFit::illegal,
        "bounded staleness counts from the slowest of all workers, whom neighbours do not know; "
        "take bsp-ps"},
    SynchronisationPair{Synchronisation::asp, SumPlace::server, PairFit::legal, ""},
    SynchronisationPair{Synchronisation::asp, SumPlace::all_reduce, PairFit::illegal,
                        "an all-reduce waits for every worker, so nobody can go on without the "
                        "others; take bsp-ps"},
    SynchronisationPair{
        Synchronisation::asp, SumPlace::neighbours, PairFit::partial,
        "neighbours that do not wait average with weights of unknown age (AD-PSGD), which no "
        "oracle replays here; take bsp-ps"},
    SynchronisationPair{Synchronisation::staggered, SumPlace::server, PairFit::legal, ""},
    SynchronisationPair{Synchronisation::staggered, SumPlace::all_reduce, PairFit::illegal,
                        "an all-reduce is all workers' at once, and nobody has a turn; take "
                        "bsp-ps"},
    SynchronisationPair{Synchronisation::staggered, SumPlace::neighbours, PairFit::illegal,
                        "whose turn it is, is a server's to say; take bsp-ps"},
    SynchronisationPair{Synchronisation::backup, SumPlace::server, PairFit::legal, ""},
    SynchronisationPair{Synchronisation::backup, SumPlace::all_reduce, PairFit::illegal,
                        "an all-reduce waits for every worker, so none can be left out; take "
                        "bsp-ps"},
    SynchronisationPair{Synchronisation::backup, SumPlace::neighbours, PairFit::illegal,
                        "who is late is a server's to say; take bsp-ps"},
    SynchronisationPair{Synchronisation::lag, SumPlace::server, PairFit::legal, ""},
    SynchronisationPair{
        Synchronisation::lag, SumPlace::all_reduce, PairFit::partial,
        "an all-reduce needs a gradient of every worker, so that one is saved only where nobody "
        "has anything new; take bsp-ps, whose server keeps what each sent last"},
    SynchronisationPair{
        Synchronisation::lag, SumPlace::neighbours, PairFit::partial,
        "neighbours that send only what changed keep a copy of each other's weights (DETSGRAD), "
        "which is not offered; take bsp-ps"},
    SynchronisationPair{
        Synchronisation::adacomm, SumPlace::server, PairFit::partial,
        "the loss of all workers says how long a round is, and a server that sums does not hear "
        "of it: take a method that all-reduces"},
    SynchronisationPair{Synchronisation::adacomm, SumPlace::all_reduce, PairFit::legal, ""},
    SynchronisationPair{
        Synchronisation::adacomm, SumPlace::neighbours, PairFit::partial,
        "the loss of all workers says how long a round is, and neighbours know each other's only; "
        "take bsp-a2a, or synchronisation = \"local\""},
    SynchronisationPair{Synchronisation::easgd, SumPlace::server, PairFit::legal, ""},
    SynchronisationPair{Synchronisation::easgd, SumPlace::all_reduce, PairFit::legal, ""},
    SynchronisationPair{
        Synchronisation::easgd, SumPlace::neighbours, PairFit::illegal,
        "the centre is drawn by all workers, whom neighbours do not know; take bsp-ps or "
        "bsp-a2a"}};

const SynchronisationPair& synchronisation_pair(Synchronisation synchronisation, SumPlace sums);

/// A server applies every gradient as it comes: no step is all workers' together.
constexpr bool is_asynchronous(Synchronisation synchronisation) {
  return synchronisation == Synchronisation::ssp || synchronisation == Synchronisation::asp ||
         synchronisation == Synchronisation::staggered ||
         synchronisation == Synchronisation::backup;
}

/// Workers do steps of their own between two meetings.
constexpr bool has_local_steps(Synchronisation synchronisation) {
  return synchronisation == Synchronisation::local ||
         synchronisation == Synchronisation::post_local ||
         synchronisation == Synchronisation::adacomm || synchronisation == Synchronisation::easgd;
}

/// Whether what is trained is a centre that no worker's weights are before the end.
constexpr bool has_centre(Synchronisation synchronisation) {
  return synchronisation == Synchronisation::easgd;
}

/// Why training cannot go from one to the other at the end of an epoch; empty where it can. With a
/// server all but local steps are one server's ways to answer; an all-reduce has bsp and local.
std::string switch_misfit(SumPlace sums, Synchronisation from, Synchronisation to);

WeightAgreement agreement_of(TrainingMethod method, Synchronisation synchronisation);

}  // namespace dynamiccl
