#pragma once

#include <functional>
#include <string>

#include "reports/compare/comparison.hpp"
#include "tests/db/synthetic.hpp"

namespace dynamiccl::testing {

/// Launch medians that differ a little from launch to launch, and a lot from block to block.
inline double planted(const std::string& environment, int block) {
  const double little = 1 + 0.001 * ((block * 7 + (environment == "bare-metal" ? 0 : 3)) % 5);
  return (environment == "bare-metal" ? 100.0 : 110.0) * (1 + 0.3 * block) * little;
}

/// Runs of two environments, one collective and two sizes in a scratch database, to be compared.
class Runs {
 public:
  Runs() : store(folder.file("a.sqlite")) {}

  /// @param factor all times times this, without the spread between blocks
  void add(const std::string& id, double factor, int launches = 6,
           const std::function<void(SyntheticPlan&)>& change = {}) {
    add(
        id, launches,
        [factor](const GroupInfo& group, int block) {
          return factor > 0 ? factor * (1 + 0.001 * (block % 3))
                            : planted(group.environment, block);
        },
        change);
  }

  /// @param time_us of a launch of this group in this block
  void add(const std::string& id, int launches,
           const std::function<double(const GroupInfo&, int)>& time_us,
           const std::function<void(SyntheticPlan&)>& change = {}) {
    auto plan = make_plan(id, {"bare-metal", "cross-docker"}, {"allreduce"}, {1024, 65536});
    if (change) change(plan);
    store.begin_run(plan.run, plan.groups, plan.cells);
    for (int block = 0; block < launches; ++block) {
      for (const auto& group : plan.groups) {
        store_launch(store, plan, group, block,
                     [&](const CellInfo&, int, int) { return time_us(group, block); });
      }
    }
    store.end_run(id, "complete");
  }

  [[nodiscard]] Comparison compare(const std::string& a, const std::string& b,
                                   const ComparisonOptions& options = {}) const {
    const SideDefaults defaults{folder.file("a.sqlite"), "last"};
    return compare_sides(load_side(parse_side(a, defaults), {}),
                         load_side(parse_side(b, defaults), {}), options);
  }

  ScratchFolder folder;
  Store store;
};

}  // namespace dynamiccl::testing
