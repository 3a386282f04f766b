#include <fmt/format.h>

#include "core/vocabulary/text.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/stragglers.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

std::string name_of_measure(PaceMeasure measure) {
  return measure == PaceMeasure::own_work ? "own_work" : "arrival";
}

Table straggler_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                      const QueryScope& /*scope*/) {
  Table table;
  for (const std::int64_t run : runs) {
    for (const auto& pace : paces_of_run(reader, run)) {
      auto row = pace.group;
      row.emplace_back(name_of_measure(pace.measure));
      row.emplace_back(pace.rank);
      row.emplace_back(static_cast<std::int64_t>(pace.launch_ratios.size()));
      row.emplace_back(pace.iterations);
      row.emplace_back(pace.ratio.value);
      add_bounds(row, pace.ratio.interval);
      row.emplace_back(100 * static_cast<double>(pace.slow) / static_cast<double>(pace.iterations));
      row.emplace_back(static_cast<std::int64_t>(pace.slow_blocks.size()));
      row.push_back(or_null(join(pace.slow_blocks, ", ")));
      row.emplace_back(pace.straggler);
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

std::string straggler_method() {
  return fmt::format(
      "method: an iteration is slow beyond x {0:g}. own_work: its copies, sums and computing "
      "against the median of the ranks that do the same work. arrival: 1 + how much later it came "
      "from the barrier than the others (less what the clocks may err by) / its time in the call. "
      "Slow in a launch = in more than {1:g} % of the iterations beyond chance (sign test, 5 %). "
      "changing = slow in some launches only; "
      "yes = slow in all, and the 95 % interval of the ratio over launches (median of the cells) "
      "is above x {0:g} at a false discovery rate of 5 % over the run's rows; no = in none and the "
      "interval is below; else UNCLEAR. What a rank does inside a library call is in neither: its "
      "peers wait for it there",
      kSlowRank, 100 * kSlowLaunchShare);
}

}  // namespace

Query stragglers_query() {
  return {
      .title = "Stragglers",
      .row =
          "one rank of a group: is it slower than the others of its kind (own_work: copies, sums "
          "and computing; arrival: after the barrier), in how many iterations and launches?",
      .columns = R"(
run_id environment backend architecture ranks group_knobs
measure | text | own_work: copies, sums and computing; arrival: after the barrier
rank launches iterations ratio
slow_iterations_percent | percent, real | iterations in which it is slow
slow_launches | integer | launches in which it is
slow_blocks | text | their rounds
straggler | text | yes, changing, no or UNCLEAR
)",
      .method = straggler_method(),
      .needs = "ranks of our own worker or trainer; tables of other programs do not say it",
      .of_runs = straggler_table};
}

}  // namespace dynamiccl
