#include "orchestrator/doctor/pair_search.hpp"

#include <algorithm>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

/// Ends the search from wherever it is.
struct Stopped {};

class Search {
 public:
  Search(std::size_t nodes, const MeasurePair& measure, const PairSearchLimits& limits)
      : nodes_(nodes), measure_(measure), limits_(limits) {}

  PairSearchResult run() {
    DYN_ASSERT(nodes_ >= 2 && limits_.confirmations >= 3, "too few nodes or launches");
    try {
      look_at_all();
      split_slow_pairs();
      suspect();
      confirm();
    } catch (const Stopped&) {
      result_.stopped = true;
    }
    // Not what is fastest by now: that may be a confirming launch of the very node in question.
    result_.reference = held_against_ ? held_against_ : reference();
    return std::move(result_);
  }

 private:
  PairTime launch(std::size_t a, std::size_t b) {
    auto time = measure_(a, b);
    if (!time) throw Stopped{};
    result_.launches.push_back({a, b, *time});
    return *time;
  }

  /// Neighbours in the list are pairs; the one that is left over meets the first.
  void look_at_all() {
    for (std::size_t node = 0; node + 1 < nodes_; node += 2) launch(node, node + 1);
    if (nodes_ % 2 == 0) return;
    launch(nodes_ - 1, 0);
    // Of three nodes two pairs may both hold the slow one.
    if (nodes_ == 3) launch(1, 2);
  }

  [[nodiscard]] std::optional<PairLaunch> reference() const {
    std::optional<PairLaunch> best;
    for (const auto& one : result_.launches)
      if (one.time.ok() && (!best || one.time.fastest_us < best->time.fastest_us)) best = one;
    return best;
  }

  [[nodiscard]] bool well(const PairLaunch& launch, const PairLaunch& best) const {
    return launch.time.ok() && launch.time.fastest_us <= best.time.fastest_us * limits_.suspect;
  }

  /// A node that was ever fast with anybody is fast.
  [[nodiscard]] bool cleared(std::size_t node, const PairLaunch& best) const {
    return std::any_of(result_.launches.begin(), result_.launches.end(), [&](const auto& one) {
      return (one.a == node || one.b == node) && well(one, best);
    });
  }

  /// With anybody, however slowly.
  [[nodiscard]] bool ran(std::size_t node) const {
    return std::any_of(result_.launches.begin(), result_.launches.end(), [&](const auto& one) {
      return (one.a == node || one.b == node) && one.time.ok();
    });
  }

  /// Neither end is to blame for it alone.
  [[nodiscard]] bool of_link(const PairLaunch& one, const PairLaunch& best) const {
    if (!one.time.ok()) return ran(one.a) && ran(one.b);
    return !well(one, best) && cleared(one.a, best) && cleared(one.b, best);
  }

  void split_slow_pairs() {
    const auto best = reference();
    if (!best) return;
    std::size_t turn = 0;
    for (std::size_t node = 0; node < nodes_; ++node)
      // The two of a slow pair each get another node of the fastest one.
      if (!cleared(node, *best)) launch(node, turn++ % 2 == 0 ? best->a : best->b);
  }

  void suspect() {
    const auto best = reference();
    if (!best) return;
    for (std::size_t node = 0; node < nodes_; ++node)
      if (!cleared(node, *best)) add({node, best->a, false, {}, "", false, 0});
    for (const auto& one : std::vector<PairLaunch>(result_.launches))
      if (of_link(one, *best)) add({one.a, one.b, true, {}, "", false, 0});
  }

  void add(const PairSuspect& suspect) {
    const bool known =
        std::any_of(result_.suspects.begin(), result_.suspects.end(), [&](const auto& other) {
          return other.node == suspect.node && other.with == suspect.with;
        });
    if (!known) result_.suspects.push_back(suspect);
  }

  /// Fresh launches of one suspect.
  struct Confirmation {
    std::vector<double> times;
    int failures = 0;
    int enough_failures = 2;  ///< to say that no launch comes up; each may take a timeout
    [[nodiscard]] bool open(int confirmations) const {
      return failures < enough_failures && static_cast<int>(times.size()) < confirmations;
    }
  };

  /// Of what never ran one failure more is enough; what ran before may have failed by chance.
  [[nodiscard]] int enough_failures(const PairSuspect& suspect) const {
    const bool ran =
        std::any_of(result_.launches.begin(), result_.launches.end(), [&](const PairLaunch& one) {
          const bool of_node = one.a == suspect.node || one.b == suspect.node;
          const bool of_pair = one.a == suspect.node && one.b == suspect.with;
          return one.time.ok() && (suspect.link ? of_pair : of_node);
        });
    return ran ? 2 : 1;
  }

  /// Nothing is judged by the launches that made it a suspect.
  void confirm() {
    if (result_.suspects.empty()) return;
    held_against_ = reference();
    const PairLaunch best = *held_against_;
    std::vector<double> as_it_should_be;
    std::vector<Confirmation> confirmations(result_.suspects.size());
    for (std::size_t i = 0; i < confirmations.size(); ++i)
      confirmations[i].enough_failures = enough_failures(result_.suspects[i]);
    const auto open = [&](const Confirmation& one) { return one.open(limits_.confirmations); };
    // A turn more makes up for a launch that failed by chance.
    for (int turn = 0; turn <= limits_.confirmations; ++turn) {
      const bool enough = static_cast<int>(as_it_should_be.size()) >= limits_.confirmations;
      if (turn == limits_.confirmations && enough &&
          std::none_of(confirmations.begin(), confirmations.end(), open))
        break;
      const PairTime good = launch(best.a, best.b);
      if (good.ok()) as_it_should_be.push_back(good.typical_us);
      for (std::size_t i = 0; i < confirmations.size(); ++i)
        if (open(confirmations[i])) launch_suspect(result_.suspects[i], confirmations[i]);
    }
    for (std::size_t i = 0; i < confirmations.size(); ++i)
      judge_suspect(result_.suspects[i], confirmations[i], as_it_should_be);
  }

  void launch_suspect(PairSuspect& suspect, Confirmation& confirmation) {
    const PairTime time = launch(suspect.node, suspect.with);
    if (time.ok()) {
      confirmation.times.push_back(time.typical_us);
    } else {
      ++confirmation.failures;
      suspect.failure = time.failure;
    }
  }

  void judge_suspect(PairSuspect& suspect, const Confirmation& confirmation,
                     const std::vector<double>& as_it_should_be) const {
    const auto& times = confirmation.times;
    if (confirmation.failures >= confirmation.enough_failures) {
      // Some came up: flaky, which is said but not blamed on the node.
      suspect.confirmed = times.empty() && !as_it_should_be.empty();
      return;
    }
    suspect.failure.clear();
    suspect.launches_a_side = static_cast<int>(std::min(times.size(), as_it_should_be.size()));
    suspect.ratio = ratio_unpaired(times, as_it_should_be);
    suspect.confirmed = judge(suspect.ratio, {limits_.band}) == Verdict::slower;
  }

  std::size_t nodes_;
  const MeasurePair& measure_;
  const PairSearchLimits& limits_;
  PairSearchResult result_;
  std::optional<PairLaunch> held_against_;  ///< in confirm()
};

}  // namespace

bool PairSearchResult::found() const {
  return std::any_of(suspects.begin(), suspects.end(),
                     [](const auto& suspect) { return suspect.confirmed; });
}

PairSearchResult find_slow_nodes(std::size_t nodes, const MeasurePair& measure,
                                 const PairSearchLimits& limits) {
  return Search(nodes, measure, limits).run();
}

}  // namespace dynamiccl
