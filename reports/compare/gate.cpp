#include "reports/compare/gate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"

namespace dynamiccl {
namespace {

std::string cell_words(const CellFigure& f) {
  std::string text = fmt::format(
      "{} {} {} {} {}, {}", f.environment, f.backend, f.architecture, f.collective,
      f.collective == "training" ? f.algorithm
                                 : format_bytes(Bytes(static_cast<std::uint64_t>(f.size_bytes))),
      counted(f.ranks, "rank"));
  for (const auto& knobs : {f.group_knobs, f.cell_knobs})
    if (!knobs.empty() && knobs != "{}") text += " " + knobs;
  return text;
}

/// Cells alike but for the run.
std::string key_of(CellFigure figure) {
  figure.run_id.clear();
  return key_without(figure, "");
}

bool share_a_regime(const CellFigure& a, const CellFigure& b) {
  if (a.regimes.empty() || b.regimes.empty()) return a.regimes.empty() == b.regimes.empty();
  return std::ranges::any_of(a.regimes, [&](const auto& one) { return b.regimes.contains(one); });
}

/// Takes the cells away whose regime the other side has not seen.
/// @returns a finding for each environment, library and regime of `now` without a reference
std::vector<GateFinding> keep_known_regimes(ComparisonSide& reference, ComparisonSide& now) {
  std::map<std::string, const CellFigure*> known;
  for (const auto& figure : reference.figures) known[key_of(figure)] = &figure;
  std::map<std::string, std::size_t> unknown;
  std::set<std::string> elsewhere;
  for (const auto& figure : now.figures) {
    const auto found = known.find(key_of(figure));
    if (found != known.end() && share_a_regime(*found->second, figure)) continue;
    elsewhere.insert(key_of(figure));
    ++unknown[fmt::format("{} {} in regime {}", figure.environment, figure.backend,
                          join({figure.regimes.begin(), figure.regimes.end()}, ", "))];
  }
  const auto drop = [&](const CellFigure& figure) { return elsewhere.contains(key_of(figure)); };
  std::erase_if(now.figures, drop);
  std::erase_if(reference.figures, drop);
  std::vector<GateFinding> findings;
  for (const auto& [where, cells] : unknown)
    findings.push_back({"no reference", fmt::format("{}: {}", where, counted(cells, "cell"))});
  return findings;
}

std::string change_text(const ComparedCell& cell) {
  std::string text = fmt::format("{}: {} -> {}, x {:.3g}", cell_words(cell.b),
                                 format_micros(Micros(cell.a.median_us())),
                                 format_micros(Micros(cell.b.median_us())), cell.time_ratio.value);
  if (const auto& interval = cell.time_ratio.interval)
    text += fmt::format(" [{:.3g}, {:.3g}]", interval->low, interval->high);
  return text + (cell.note.empty() ? "" : "; " + cell.note);
}

void add_findings(Gate& gate) {
  for (const auto& cell : gate.comparison.cells) {
    if (cell.verdict == Verdict::slower) {
      gate.findings.push_back({"slower", change_text(cell)});
    } else if (cell.fails_in_b()) {
      gate.findings.push_back({"failed", cell_words(cell.b) + ": " + cell.failures_b});
    } else if (cell.verdict == Verdict::not_judged || !cell.time_ratio.interval) {
      gate.findings.push_back({"not judged", change_text(cell)});
      continue;
    } else {
      continue;
    }
    gate.tripped.push_back(key_of(cell.b));
  }
  for (const auto& group : missing_groups(gate.comparison.missing))
    if (group.missing_in == "B")
      gate.findings.push_back({"failed", group.what + ": " + group.reason});
}

/// Whether the second look says anything of a cell: one that was timed otherwise clears nothing.
bool seen_again(const Gate& second, const CellFigure& figure) {
  return std::ranges::any_of(second.comparison.cells, [&](const ComparedCell& cell) {
    return key_of(cell.b) == key_of(figure) &&
           (cell.fails_in_b() || time_ratio(cell.b, cell.a).interval);
  });
}

/// The second look, and what to say of cells that it does not judge. Where all were timed
/// otherwise, as batches are sized by each run for itself, it is empty.
std::pair<Gate, std::string> looked_again(ComparisonSide reference, ComparisonSide again,
                                          const ComparisonOptions& options) {
  try {
    return {first_look(std::move(reference), std::move(again), options), "it was timed otherwise"};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    return {Gate{}, join(split(error.what(), '\n'), " ")};
  }
}

}  // namespace

Verdict Gate::verdict() const {
  const auto has = [&](std::string_view what) {
    return std::ranges::any_of(findings, [&](const auto& one) { return one.what == what; });
  };
  if (has("slower") || has("failed")) return Verdict::slower;
  const bool judged = std::ranges::any_of(comparison.cells, [](const ComparedCell& cell) {
    return cell.time_ratio.interval && cell.verdict != Verdict::not_judged;
  });
  return judged ? Verdict::same : Verdict::unclear;
}

std::optional<double> Gate::may_hide() const {
  std::vector<double> ends;
  for (const auto& cell : comparison.cells)
    if (cell.time_ratio.interval) ends.push_back(cell.time_ratio.interval->high);
  if (ends.empty()) return std::nullopt;
  const auto middle = ends.begin() + static_cast<std::ptrdiff_t>(ends.size() / 2);
  std::nth_element(ends.begin(), middle, ends.end());
  return *middle;
}

Gate first_look(ComparisonSide reference, ComparisonSide now, const ComparisonOptions& options) {
  Gate gate;
  auto unknown = keep_known_regimes(reference, now);
  gate.comparison.a = reference;
  gate.comparison.b = now;
  if (!reference.figures.empty() && !now.figures.empty())
    gate.comparison = compare_sides(std::move(reference), std::move(now), options);
  add_findings(gate);
  std::ranges::move(unknown, std::back_inserter(gate.findings));
  return gate;
}

Gate second_look(Gate first, ComparisonSide reference, ComparisonSide again,
                 const ComparisonOptions& options) {
  const auto [second, reason] = looked_again(std::move(reference), std::move(again), options);
  const auto tripped = [](const Gate& gate, const CellFigure& figure) {
    return std::ranges::find(gate.tripped, key_of(figure)) != gate.tripped.end();
  };
  std::vector<GateFinding> unseen;
  for (auto& cell : first.comparison.cells) {
    if (!tripped(first, cell.b) || tripped(second, cell.b)) continue;
    if (!seen_again(second, cell.b)) {
      unseen.push_back({cell.verdict == Verdict::slower ? "slower" : "failed",
                        change_text(cell) + "; not judged again: " + reason});
      continue;
    }
    cell.verdict = Verdict::same;
    cell.failures_b.clear();
    cell.note = "was slower or failed, and did not when it was measured again";
  }
  std::vector<GateFinding> kept;
  for (auto& finding : first.findings)
    if (finding.what != "slower" && finding.what != "failed") kept.push_back(std::move(finding));
  first.findings.clear();
  for (const auto& cell : first.comparison.cells)
    if (tripped(first, cell.b) && !tripped(second, cell.b) && seen_again(second, cell.b))
      first.findings.push_back({"cleared", cell_words(cell.b) + ": " + cell.note});
  for (const auto& finding : second.findings)
    if (finding.what == "slower" || finding.what == "failed")
      first.findings.push_back({finding.what, finding.text + "; measured twice"});
  std::ranges::move(unseen, std::back_inserter(first.findings));
  // What was never measured at all has no second look.
  for (const auto& group : missing_groups(first.comparison.missing))
    if (group.missing_in == "B")
      first.findings.push_back({"failed", group.what + ": " + group.reason});
  std::ranges::move(kept, std::back_inserter(first.findings));
  first.tripped = second.tripped;
  return first;
}

}  // namespace dynamiccl
