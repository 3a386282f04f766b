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
    result_.reference = reference();
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
      if (!well(one, *best) && cleared(one.a, *best) && cleared(one.b, *best))
        add({one.a, one.b, true, {}, "", false, 0});
  }

  void add(const PairSuspect& suspect) {
    const bool known =
        std::any_of(result_.suspects.begin(), result_.suspects.end(), [&](const auto& other) {
          return other.node == suspect.node && other.with == suspect.with;
        });
    if (!known) result_.suspects.push_back(suspect);
  }

  /// Nothing is judged by the launches that made it a suspect.
  void confirm() {
    if (result_.suspects.empty()) return;
    const PairLaunch best = *reference();
    std::vector<double> as_it_should_be;
    std::vector<std::vector<double>> of_suspect(result_.suspects.size());
    std::vector<int> failures(result_.suspects.size());
    for (int turn = 0; turn < limits_.confirmations; ++turn) {
      const PairTime good = launch(best.a, best.b);
      if (good.ok()) as_it_should_be.push_back(good.typical_us);
      for (std::size_t i = 0; i < result_.suspects.size(); ++i) {
        auto& suspect = result_.suspects[i];
        // One failure more is enough of what takes a timeout each.
        if (failures[i] > 0) continue;
        const PairTime time = launch(suspect.node, suspect.with);
        if (time.ok()) {
          of_suspect[i].push_back(time.typical_us);
        } else {
          ++failures[i];
          suspect.failure = time.failure;
        }
      }
    }
    for (std::size_t i = 0; i < result_.suspects.size(); ++i)
      judge_suspect(result_.suspects[i], of_suspect[i], as_it_should_be);
  }

  void judge_suspect(PairSuspect& suspect, const std::vector<double>& times,
                     const std::vector<double>& as_it_should_be) const {
    if (!suspect.failure.empty()) {
      // Failed when it was found, or so often since that it never ran: else it was chance.
      suspect.confirmed = times.empty() && !as_it_should_be.empty();
      return;
    }
    suspect.launches_a_side = static_cast<int>(std::min(times.size(), as_it_should_be.size()));
    suspect.ratio = ratio_unpaired(times, as_it_should_be);
    suspect.confirmed = judge(suspect.ratio, {limits_.band}) == Verdict::slower;
  }

  std::size_t nodes_;
  const MeasurePair& measure_;
  const PairSearchLimits& limits_;
  PairSearchResult result_;
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
