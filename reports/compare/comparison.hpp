#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/statistics/statistics.hpp"
#include "core/statistics/verdict.hpp"
#include "db/reader.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/machines.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {

/// Which measurements one side of a comparison has.
struct SideSelection {
  std::string label;  ///< as the user named it
  std::string db;     ///< path of the database
  std::string run;    ///< id, prefix, "last", "last~1"
  /// Set when the sides are two values of an axis: "environment" and "bare-metal".
  std::string axis;
  std::string value;
};

/// Where measurements are looked for when a side's name does not say.
struct SideDefaults {
  std::string db;
  std::string run = "last";
};

/// Understands, in this order: AXIS=VALUE ("backend=gloo"), an environment measured in the run,
/// FILE.sqlite or FILE.sqlite:RUN (another machine's database), commit:REVISION (newest run of that
/// revision of this program), and a run by id, prefix, last or last~N.
/// @throws Error(input) when it is none of these, saying what would be understood
SideSelection parse_side(const std::string& word, const SideDefaults& defaults);

/// A named value that stands next to a side's figures.
using Facts = std::map<std::string, std::string>;

/// The name under which facts of the CPUs that ranks may run on are compared; printed first.
constexpr std::string_view kPlacement = "placement";
/// What the fact is called that says how many machines the ranks were on; printed with it.
constexpr std::string_view kNodes = "nodes";

/// Where the ranks of a group were let run in the launches that count (CorePlacement).
struct Placement {
  std::set<std::string> cpus;
  std::set<std::string> shapes;
  std::set<std::string> layouts;
};

/// A planned cell of which something was not measured, or not well.
struct CellWithReason {
  CellFigure figure;   ///< its axes
  std::string reason;  ///< status and why
};

/// One side, read.
struct ComparisonSide {
  SideSelection selection;
  std::string run_id;
  std::string run_name;
  std::string run_status;  ///< "complete", or what became of the run instead
  std::string started_utc;
  std::vector<CellFigure> figures;
  std::vector<CellWithReason> without_result;
  /// Figures that stand on the launches that were left: the others failed or were wrong.
  std::vector<CellWithReason> with_failures;
  Facts method;                                 ///< how was measured: must be equal
  Facts provenance;                             ///< where and with what: printed when different
  std::map<std::string, Placement> placements;  ///< by group_key; without groups that did not tell
  Machines machines;                            ///< of all groups that are compared
  bool imported = false;                        ///< a foreign table: no launches of ours
  std::vector<std::string> trust;               ///< trust_notes() of the run
};

/// @param where as QueryScope::where
/// @throws Error as Reader; Error(input) naming the condition that no measured cell meets
ComparisonSide load_side(const SideSelection& selection,
                         const std::vector<std::pair<std::string, std::string>>& where);

/// A fact that is not the same on both sides; "-" where a side does not have it.
struct Difference {
  std::string what;
  std::string a;
  std::string b;
};
std::vector<Difference> differences(const Facts& a, const Facts& b);

struct ComparisonOptions {
  EquivalenceBand band;
  double false_discovery_rate = 0.05;
  /// false: each row is judged as if it were the only one.
  bool correct_for_table = true;
  /// Compare what was measured by different methods or on different cores, too.
  bool anyway = false;
};

struct ComparedCell {
  CellFigure a;
  CellFigure b;
  std::optional<Difference> placement;  ///< set when the ranks were let run elsewhere
  bool unlike = false;  ///< timed in another way or elsewhere, and so without a verdict
  Ratio time_ratio;     ///< time of B / time of A
  Verdict verdict = Verdict::unclear;
  std::optional<int> launches_needed;  ///< per side, for an UNCLEAR that more would settle
  std::string note;                    ///< why there is no verdict, or what to bear in mind
  std::string failures_a;              ///< of launches of A that failed or were wrong, "" = none
  std::string failures_b;

  /// B lost launches and A none: what is left of B does not speak for it.
  [[nodiscard]] bool fails_in_b() const { return failures_a.empty() && !failures_b.empty(); }
};

/// A cell that only one side has a result of.
struct CellWithoutPartner {
  CellFigure figure;
  std::string missing_in;  ///< "A" or "B"
  std::string reason;
};

/// Cells of one environment and backend that one side lacks for one reason.
struct MissingGroup {
  std::string what;  ///< "cross-docker nccl ring, 2 ranks: 12 cells (allreduce, broadcast; ...)"
  CellFigure first;
  std::string missing_in;
  std::string reason;
};

struct Comparison {
  ComparisonSide a;  ///< without its figures
  ComparisonSide b;
  ComparisonOptions options;
  std::vector<ComparedCell> cells;
  std::vector<CellWithoutPartner> missing;    ///< planned by both sides
  std::vector<CellWithoutPartner> unplanned;  ///< planned by one
  int judged = 0;  ///< cells with an interval and of one method: what a false alarm can come from
  std::vector<Difference> method;
  std::vector<Difference> provenance;

  [[nodiscard]] int count(Verdict verdict) const;
  [[nodiscard]] int unplanned_in(std::string_view side) const;
  /// SLOWER when any cell is; else UNCLEAR when any cell is, is not judged or has no partner; else
  /// FASTER when any is; else SAME.
  [[nodiscard]] Verdict overall() const;
};

/// Pairs equal cells of both sides and judges them: paired by block in one run, else unpaired
/// (Welch), both on logarithms of launch medians. A cell that was timed in another way or whose
/// ranks were let run on other cores has a ratio and no verdict, unless options.anyway is set. A
/// cell with launches that failed in B alone is SLOWER or UNCLEAR.
/// @throws Error(input) naming what differs when the methods do, or when all cells are such and
/// options.anyway is not set, and when no cell is on both sides
Comparison compare_sides(ComparisonSide a, ComparisonSide b, const ComparisonOptions& options);

/// Of comparison.missing or comparison.unplanned, in the order of the first cell of each group.
std::vector<MissingGroup> missing_groups(const std::vector<CellWithoutPartner>& cells);

}  // namespace dynamiccl
