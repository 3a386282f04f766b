#pragma once

#include <array>
#include <string>
#include <string_view>

#include "core/vocabulary/vocabulary.hpp"
#include "train/spec/training_method.hpp"

namespace dynamiccl {

/// When workers wait for each other: the axis next to a method's schedule and its place of the sum.
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
  easgd,       ///< every `local_steps` steps, each drawn a part of the way to a centre (EASGD)
  d2           ///< in every step, with neighbours, after what the last average moved (D2)
};

/// What workers share of their weights.
enum class WeightAgreement {
  every_step,          ///< the same bits after each
  at_synchronisation,  ///< the same bits where they meet
  never                ///< each has its own
};

/// Whether two things can be had together, and why not; empty where they can.
enum class PairFit {
  legal,
  partial,  ///< sensible in parts, which are not offered
  illegal
};
struct Fit {
  PairFit fit = PairFit::legal;
  std::string_view reason = "";
};

/// All that is particular to a synchronisation but how it is carried out (train/synchronise).
struct SynchronisationRow {
  Synchronisation synchronisation;
  std::string_view name;
  /// A server applies every gradient as it comes: no step is all workers' together.
  bool asynchronous = false;
  bool local_steps = false;  ///< workers do steps of their own between two meetings
  bool centre = false;       ///< what is trained is a centre that no worker has before the end
  int memories = 0;          ///< buffers as large as all gradients that a worker keeps for it
  Fit server = {};           ///< with each place of the sum
  Fit all_reduce = {};
  Fit neighbours = {};
  Fit coded = {};  ///< with gradients, or ways of weights, that are encoded
};

// A new synchronisation is a name above, a row here, and who carries it out.
inline constexpr std::array kSynchronisations{
    SynchronisationRow{.synchronisation = Synchronisation::bsp, .name = "bsp"},
    // What is encoded is how far a worker's weights went since all were the same.
    SynchronisationRow{
        .synchronisation = Synchronisation::local, .name = "local", .local_steps = true},
    SynchronisationRow{
        .synchronisation = Synchronisation::post_local,
        .name = "post-local",
        .local_steps = true,
        .server = {PairFit::partial,
                   "post-local switches from sums of gradients to means of weights, and a server "
                   "would have to switch with its workers: take a method that all-reduces"},
        .neighbours = {PairFit::illegal,
                       "post-local begins with steps that all workers do together, and neighbours "
                       "never do"},
        .coded = {PairFit::partial,
                  "what encoding left of gradients is not what it left of weights, and the switch "
                  "would lose it; take local"}},
    // Where a server answers each worker by itself, gradients are encoded; its weights are plain.
    SynchronisationRow{
        .synchronisation = Synchronisation::ssp,
        .name = "ssp",
        .asynchronous = true,
        .all_reduce = {PairFit::partial,
                       "bounded staleness needs somebody who answers each worker by itself, and an "
                       "all-reduce needs all of them at once: only a fixed delay of every sum is "
                       "left of it; take bsp-ps"},
        .neighbours = {PairFit::illegal,
                       "bounded staleness counts from the slowest of all workers, whom neighbours "
                       "do not know; take bsp-ps"}},
    SynchronisationRow{
        .synchronisation = Synchronisation::asp,
        .name = "asp",
        .asynchronous = true,
        .all_reduce = {PairFit::illegal,
                       "an all-reduce waits for every worker, so nobody can go on without the "
                       "others; take bsp-ps"},
        .neighbours = {PairFit::partial,
                       "neighbours that do not wait average with weights of unknown age (AD-PSGD), "
                       "which no oracle replays here; take bsp-ps"}},
    SynchronisationRow{
        .synchronisation = Synchronisation::staggered,
        .name = "staggered",
        .asynchronous = true,
        .all_reduce = {PairFit::illegal,
                       "an all-reduce is all workers' at once, and nobody has a turn; take bsp-ps"},
        .neighbours = {PairFit::illegal, "whose turn it is, is a server's to say; take bsp-ps"}},
    SynchronisationRow{
        .synchronisation = Synchronisation::backup,
        .name = "backup",
        .asynchronous = true,
        .all_reduce = {PairFit::illegal,
                       "an all-reduce waits for every worker, so none can be left out; take "
                       "bsp-ps"},
        .neighbours = {PairFit::illegal, "who is late is a server's to say; take bsp-ps"}},
    SynchronisationRow{
        .synchronisation = Synchronisation::lag,
        .name = "lag",
        .memories = 1,
        .all_reduce = {PairFit::partial,
                       "an all-reduce needs a gradient of every worker, so that one is saved only "
                       "where nobody has anything new; take bsp-ps, whose server keeps what each "
                       "sent last"},
        .neighbours = {PairFit::partial,
                       "neighbours that send only what changed keep a copy of each other's weights "
                       "(DETSGRAD), which is not offered; take bsp-ps"},
        .coded = {PairFit::partial,
                  "the server keeps what each worker sent last, plainly; take ssp or bsp"}},
    SynchronisationRow{
        .synchronisation = Synchronisation::adacomm,
        .name = "adacomm",
        .local_steps = true,
        .server = {PairFit::partial,
                   "the loss of all workers says how long a round is, and a server that sums does "
                   "not hear of it: take a method that all-reduces"},
        .neighbours = {PairFit::partial,
                       "the loss of all workers says how long a round is, and neighbours know each "
                       "other's only; take bsp-a2a, or synchronisation = \"local\""},
        .coded = {PairFit::partial, "its rule compares losses of plain averages; take local"}},
    SynchronisationRow{
        .synchronisation = Synchronisation::easgd,
        .name = "easgd",
        .local_steps = true,
        .centre = true,
        .memories = 1,
        .neighbours = {PairFit::illegal,
                       "the centre is drawn by all workers, whom neighbours do not know; take "
                       "bsp-ps or bsp-a2a"},
        .coded = {PairFit::partial,
                  "workers are drawn to a centre from weights of their own, of which no difference "
                  "is common; take local"}},
    SynchronisationRow{
        .synchronisation = Synchronisation::d2,
        .name = "d2",
        .memories = 1,
        .server = {PairFit::illegal,
                   "what it makes up for is that neighbours see other data, and a server sums all; "
                   "take d-psgd"},
        .all_reduce = {PairFit::illegal,
                       "what it makes up for is that neighbours see other data, and an all-reduce "
                       "sums all; take d-psgd"},
        .coded = {PairFit::partial,
                  "what encoding left out would be taken for what the average moved; leave out "
                  "synchronisation"}}};

template <>
struct NameTable<Synchronisation> {
  static constexpr std::string_view what = "synchronisation";
  static constexpr auto entries = [] {
    std::array<Named<Synchronisation>, kSynchronisations.size()> names{};
    for (std::size_t i = 0; i < names.size(); ++i)
      names[i] = {kSynchronisations[i].synchronisation, kSynchronisations[i].name};
    return names;
  }();
};

constexpr const SynchronisationRow& synchronisation_row(Synchronisation synchronisation) {
  for (const SynchronisationRow& row : kSynchronisations)
    if (row.synchronisation == synchronisation) return row;
  return kSynchronisations.front();  // every synchronisation has a row: a test asks
}
constexpr const Fit& synchronisation_fit(Synchronisation synchronisation, SumPlace sums) {
  const SynchronisationRow& row = synchronisation_row(synchronisation);
  return sums == SumPlace::server       ? row.server
         : sums == SumPlace::all_reduce ? row.all_reduce
                                        : row.neighbours;
}
constexpr bool is_asynchronous(Synchronisation synchronisation) {
  return synchronisation_row(synchronisation).asynchronous;
}
constexpr bool has_local_steps(Synchronisation synchronisation) {
  return synchronisation_row(synchronisation).local_steps;
}
constexpr bool has_centre(Synchronisation synchronisation) {
  return synchronisation_row(synchronisation).centre;
}

/// Why training cannot go from one to the other at the end of an epoch; empty where it can. With a
/// server all but local steps are one server's ways to answer; an all-reduce has bsp and local.
std::string switch_misfit(SumPlace sums, Synchronisation from, Synchronisation to);

WeightAgreement agreement_of(TrainingMethod method, Synchronisation synchronisation);

}  // namespace dynamiccl
