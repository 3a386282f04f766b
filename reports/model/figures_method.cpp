#include "reports/model/figures_method.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

template <class Set>
void merge(Set& into, const Set& from) {
  into.insert(from.begin(), from.end());
}

std::string range_text(std::int64_t low, std::int64_t high) {
  return low == high ? std::to_string(low) : fmt::format("{}-{}", low, high);
}

std::string calls_text(const std::set<std::int64_t>& batches) {
  if (batches.empty() || *batches.rbegin() == 1) return "1 call";
  return range_text(*batches.begin(), *batches.rbegin()) + " calls";
}

}  // namespace

/// Rule: the method stands under every table (Hoefler, Belli SC'15, rule 10).
std::string figures_method(const std::vector<const CellFigure*>& figures,
                           const BareMetal& bare_metal) {
  CellFigure all;
  std::size_t least = figures.front()->launches.size();
  std::size_t most = least;
  std::set<std::string> ratios;
  bool mixed_ratios = false;
  std::set<std::string> intervals;
  for (const auto* f : figures) {
    least = std::min(least, f->launches.size());
    most = std::max(most, f->launches.size());
    merge(all.cadences, f->cadences);
    merge(all.barriers, f->barriers);
    merge(all.aggregations, f->aggregations);
    merge(all.batches, f->batches);
    if (const auto interval = f->interval()) intervals.insert(words_of_method(interval->method));
    const auto* base = bare_metal.of(*f);
    if (base == nullptr || base == f) continue;
    const auto ratio = time_ratio(*f, *base);
    if (ratio.interval) ratios.insert(words_of_method(ratio.interval->method));
    mixed_ratios |= cadences_of({f, base}).size() > 1;
  }
  const auto list = [](const std::set<std::string>& set) {
    return join({set.begin(), set.end()}, ", ");
  };
  std::string text = fmt::format(
      "method: {} of the ranks' times per iteration; {} cadence, {} per sample; barrier {}; "
      "median of {} launches' medians; ",
      list(all.aggregations), list(all.cadences), calls_text(all.batches),
      all.barriers.empty() ? "not recorded" : list(all.barriers),
      range_text(static_cast<std::int64_t>(least), static_cast<std::int64_t>(most)));
  text += most < 2            ? "one launch gives no interval"
          : intervals.empty() ? "two launches give no interval"
                              : fmt::format("[95 % interval: {}]", list(intervals));
  if (!ratios.empty()) text += "; ratio to bare-metal " + list(ratios);
  if (mixed_ratios)
    text += "; no interval of the ratio where environment and bare-metal have different cadences";
  return text;
}

}  // namespace dynamiccl
