#pragma once

#include <string>
#include <vector>

#include "orchestrator/tune/check_plan.hpp"
#include "orchestrator/tune/check_times.hpp"

namespace dynamiccl {

inline constexpr double kHarmlessBand = 0.02;  ///< a size may be slower by so much, and is harmless
inline constexpr int kFewestRounds = 3;        ///< before anything is concluded

/// What files have in force in a place: a set of launch settings, and where algorithms are named.
struct InForce {
  std::size_t set = 0;
  std::vector<bool> named;  ///< by place in CheckPlan::Place::tasks
};

/// A place's sets of launch settings by the rounds that compared them.
class SetComparison {
 public:
  SetComparison(const CheckPlan& check, const CheckPlan::Place& place)
      : check_(check), place_(place) {}

  CheckTimes times;

  /// What one round measures of these sets, next to the default.
  [[nodiscard]] std::vector<Ask> round(const std::vector<bool>& measured) const;
  /// Arm of every task under a set, with the table's algorithm or the library's own.
  [[nodiscard]] std::size_t arm(std::size_t set, bool named) const;
  /// A task under what is in force, over its default.
  [[nodiscard]] std::vector<PairedTime> against_default(std::size_t i, const InForce& force) const;
  /// The set with algorithms where they are surely faster than the library's own under it, or mend
  /// what the set makes slower. MPICH's hold for all sizes of a collective.
  [[nodiscard]] InForce with_algorithms(std::size_t set) const;
  /// Which size fells it: one that is surely slower, or does not run; "" = none.
  [[nodiscard]] std::string felled_by(const InForce& force) const;
  /// Mean over all sizes of ln(time over the default's), of those sizes that tell; below 0 = gain.
  [[nodiscard]] double score(const InForce& force) const;
  /// Is `a` surely faster than `b` over the sizes that tell of either?
  [[nodiscard]] bool surely_better(const InForce& a, const InForce& b) const;
  /// Sets in the order in which they are worth a look: those that gain and that nothing fells.
  [[nodiscard]] std::vector<InForce> candidates() const;

 private:
  [[nodiscard]] bool tells(std::size_t i, const InForce& force) const;
  void name_by_size(InForce& force) const;
  void name_by_collective(InForce& force) const;

  const CheckPlan& check_;
  const CheckPlan::Place& place_;
};

/// "mca.A=1 malloc.keep=1"; "no launch setting" for none.
std::string text_of(const LaunchSettings& set);

}  // namespace dynamiccl
