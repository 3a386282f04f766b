#include "orchestrator/doctor/smallest_set.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

namespace dynamiccl {
namespace {

KeptSet joined(const KeptSet& left, const KeptSet& right) {
  KeptSet both;
  std::set_union(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(both));
  return both;
}

KeptSet without(KeptSet set, std::size_t member) {
  std::erase(set, member);
  return set;
}

class Search {
 public:
  Search(std::size_t count, const HoldsWith& holds) : holds_(holds) {
    KeptSet all(count);
    std::iota(all.begin(), all.end(), 0);
    known_[all] = true;
  }

  std::optional<KeptSet> run() {
    KeptSet kept = known_.begin()->first;
    if (ask({})) return ended_ ? std::nullopt : std::optional(KeptSet{});
    // needed() takes flags to be independent of each other, which they need not be: each is left
    // out once more, until none can be.
    for (bool smaller = true; smaller && !ended_;) {
      kept = needed({}, false, kept);
      smaller = false;
      for (const std::size_t member : KeptSet(kept))
        if (!smaller && ask(without(kept, member))) {
          kept = without(kept, member);
          smaller = true;
        }
    }
    return ended_ ? std::nullopt : std::optional(kept);
  }

 private:
  /// After the last answer everything holds, which ends the search soon.
  bool ask(const KeptSet& kept) {
    if (const auto found = known_.find(kept); found != known_.end()) return found->second;
    if (ended_) return true;
    const auto answer = holds_(kept);
    ended_ = !answer.has_value();
    if (answer) known_[kept] = *answer;
    return answer.value_or(true);
  }

  /// Which of `candidates` must join `base` for it to hold.
  /// @param changed `base` has grown since it was last asked for
  KeptSet needed(const KeptSet& base, bool changed, const KeptSet& candidates) {
    if (changed && ask(base)) return {};
    if (candidates.size() <= 1) return candidates;
    const auto half = candidates.begin() + static_cast<std::ptrdiff_t>(candidates.size() / 2);
    const KeptSet left(candidates.begin(), half);
    const KeptSet right(half, candidates.end());
    const KeptSet of_right = needed(joined(base, left), true, right);
    const KeptSet of_left = needed(joined(base, of_right), !of_right.empty(), left);
    return joined(of_left, of_right);
  }

  const HoldsWith& holds_;
  std::map<KeptSet, bool> known_;
  bool ended_ = false;
};

}  // namespace

std::optional<KeptSet> smallest_set(std::size_t count, const HoldsWith& holds) {
  if (count == 0) return KeptSet{};
  return Search(count, holds).run();
}

}  // namespace dynamiccl
