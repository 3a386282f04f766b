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

constexpr const char* kUnconfirmed = "unconfirmed";
constexpr const char* kUnsupported = "unsupported";

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
    const auto key = key_of(cell.b);
    if (cell.verdict == Verdict::slower) {
      gate.findings.push_back({"slower", change_text(cell), key});
    } else if (cell.fails_in_b()) {
      gate.findings.push_back({"failed", cell_words(cell.b) + ": " + cell.failures_b, key});
    } else if (cell.unlike && !cell.placement) {
      gate.findings.push_back({"not judged", change_text(cell), key});
    } else {
      if (cell.unlike || cell.verdict == Verdict::not_judged || !cell.time_ratio.interval)
        gate.findings.push_back({"not judged", change_text(cell), ""});
      continue;
    }
    gate.tripped.push_back(key);
  }
  for (const auto& group : missing_groups(gate.comparison.missing))
    if (group.missing_in == "B")
      gate.findings.push_back({group.reason.starts_with(kUnsupported) ? kUnsupported : "failed",
                               group.what + ": " + group.reason, ""});
}

const GateFinding* finding_of(const Gate& gate, const std::string& cell) {
  const auto found = std::ranges::find(gate.findings, cell, &GateFinding::cell);
  return found == gate.findings.end() ? nullptr : &*found;
}

/// What a look says of a cell; nullptr where it cannot tell, which clears nothing.
const ComparedCell* seen_in(const Gate& look, const std::string& cell) {
  const auto found = std::ranges::find_if(look.comparison.cells, [&](const ComparedCell& one) {
    return key_of(one.b) == cell && (one.fails_in_b() || (!one.unlike && one.time_ratio.interval));
  });
  return found == look.comparison.cells.end() ? nullptr : &*found;
}

/// Launches that waited for cores, or differ so much that a quarter would not show, neither confirm
/// that a cell is slower nor clear it.
bool cannot_tell(const ComparedCell& cell) {
  if (cell.fails_in_b()) return false;
  const auto& interval = cell.time_ratio.interval;
  return cell.verdict == Verdict::not_judged ||
         (cell.verdict == Verdict::unclear && interval && interval->high >= kBlind);
}

/// A look at what had tripped, and why it sees nothing: "" where it does.
std::pair<Gate, std::string> looked_again(ComparisonSide reference, ComparisonSide again,
                                          const ComparisonOptions& options) {
  try {
    return {first_look(std::move(reference), std::move(again), options), ""};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    return {Gate{}, join(split(error.what(), '\n'), " ")};
  }
}

/// What a look that sees it makes of a cell's finding. @returns whether to look once more
bool settle(GateFinding& finding, const Gate& look, const ComparedCell& seen) {
  const bool was_judged = finding.what != "not judged";
  if (const auto* repeated = finding_of(look, finding.cell)) {
    finding = *repeated;
    if (was_judged) finding.text += "; measured twice";
    return !was_judged;
  }
  finding.what = "cleared";
  finding.text = cell_words(seen.b) + (was_judged ? ": was slower or failed, and did not when it "
                                                    "was measured again"
                                                  : ": was timed otherwise than the reference, and "
                                                    "is not surely slower when measured again");
  return false;
}

/// The cell's verdict as the finding has it: JUnit rests on it.
void tell_cell(Gate& gate, const GateFinding& finding, const std::string& failures) {
  for (auto& cell : gate.comparison.cells)
    if (key_of(cell.b) == finding.cell) {
      cell.verdict = Verdict::unclear;
      cell.failures_b = failures;
      cell.note = finding.text;
    }
}

/// What was slower or failed in one look is neither confirmed nor cleared by one that does not see
/// it, or not well enough.
void leave_open(Gate& gate, GateFinding& finding, const std::string& why) {
  constexpr std::string_view kOnce = "; once: ";
  if (finding.what != "slower" && finding.what != "failed" && finding.what != kUnconfirmed) return;
  finding.what = kUnconfirmed;
  finding.text =
      fmt::format("{}{}{}", finding.text.substr(0, finding.text.find(kOnce)), kOnce, why);
  tell_cell(gate, finding, "");
}

/// Why a cell came to no result when it was measured again; "" where it was not even tried.
std::string lost_in(const Gate& look, const std::string& cell) {
  for (const auto& one : look.comparison.missing)
    if (key_of(one.figure) == cell && one.missing_in == "B") return one.reason;
  return "";
}

/// What a gate on a busy machine is worth; "" where it would have seen a tenth.
std::string hidden_text(const Gate& gate) {
  constexpr double kSeen = 1.1;
  const auto hidden = gate.may_hide();
  if (!hidden || *hidden <= kSeen) return "";
  return fmt::format(
      "; half of the cells could be {:.3g} times slower without showing: a quieter "
      "machine or more launches (--set protocol.launches=N) see more",
      *hidden);
}

/// Nothing that the reference has gave a result here: compare_sides() has nothing to compare.
void add_all_missing(Gate& gate, const ComparisonSide& reference, const ComparisonSide& now) {
  std::set<std::string> known;
  for (const auto& figure : reference.figures) known.insert(key_of(figure));
  for (const auto& [figure, reason] : now.without_result)
    if (known.contains(key_of(figure))) gate.comparison.missing.push_back({figure, "B", reason});
}

}  // namespace

Verdict Gate::verdict() const {
  const auto has = [&](std::string_view what) {
    return std::ranges::any_of(findings, [&](const auto& one) { return one.what == what; });
  };
  if (has("slower") || has("failed") || has(kUnsupported)) return Verdict::slower;
  if (has(kUnconfirmed)) return Verdict::unclear;
  const bool judged = std::ranges::any_of(comparison.cells, [](const ComparedCell& cell) {
    if (cell.verdict == Verdict::same || cell.verdict == Verdict::faster) return true;
    const auto& interval = cell.time_ratio.interval;
    return cell.verdict == Verdict::unclear && !cell.unlike && interval && interval->high < kBlind;
  });
  return judged ? Verdict::same : Verdict::unclear;
}

std::optional<double> Gate::may_hide() const {
  std::vector<double> ends;
  for (const auto& cell : comparison.cells)
    if (cell.time_ratio.interval && !cell.unlike && cell.verdict != Verdict::not_judged)
      ends.push_back(cell.time_ratio.interval->high);
  if (ends.empty()) return std::nullopt;
  const auto middle = ends.begin() + static_cast<std::ptrdiff_t>(ends.size() / 2);
  std::nth_element(ends.begin(), middle, ends.end());
  return *middle;
}

std::string Gate::outcome() const {
  const auto found = verdict();
  if (found == Verdict::slower) return "NOT PASSED";
  if (found == Verdict::same) return "passed" + hidden_text(*this);
  const auto open = std::ranges::count(findings, kUnconfirmed, &GateFinding::what);
  if (open > 0)
    return fmt::format(
        "not decided: {} slower or failed once, and measured again could not be judged",
        open == 1 ? "a cell was" : fmt::format("{} cells were", open));
  const std::string nothing = "nothing could be judged";
  if (!may_hide()) return nothing;
  return fmt::format("{}: each cell could be {:g} times slower without showing{}", nothing, kBlind,
                     hidden_text(*this));
}

Gate first_look(ComparisonSide reference, ComparisonSide now, const ComparisonOptions& options) {
  Gate gate;
  auto unknown = keep_known_regimes(reference, now);
  gate.comparison.a = reference;
  gate.comparison.b = now;
  if (!reference.figures.empty() && !now.figures.empty())
    gate.comparison = compare_sides(std::move(reference), std::move(now), options);
  else
    add_all_missing(gate, reference, now);
  add_findings(gate);
  std::ranges::move(unknown, std::back_inserter(gate.findings));
  return gate;
}

Gate next_look(Gate gate, ComparisonSide reference, ComparisonSide again,
               const ComparisonOptions& options) {
  const auto [look, blind] = looked_again(std::move(reference), std::move(again), options);
  std::vector<std::string> left;
  for (auto& finding : gate.findings) {
    if (std::ranges::find(gate.tripped, finding.cell) == gate.tripped.end()) continue;
    const auto* seen = seen_in(look, finding.cell);
    const auto lost = seen == nullptr ? lost_in(look, finding.cell) : "";
    if (!lost.empty()) {
      finding.what = lost.starts_with(kUnsupported) ? kUnsupported : "failed";
      finding.text += "; no result when it was measured again: " + lost;
      tell_cell(gate, finding, lost);
      continue;
    }
    if (seen == nullptr || (finding.what != "failed" && cannot_tell(*seen))) {
      leave_open(gate, finding,
                 seen != nullptr ? "measured again, its launches waited or differ too much to tell"
                 : blind.empty() ? "not judged again: it was timed otherwise, or elsewhere"
                                 : "not judged again: " + blind);
      left.push_back(finding.cell);
      continue;
    }
    if (settle(finding, look, *seen)) left.push_back(finding.cell);
    for (auto& cell : gate.comparison.cells) {
      if (key_of(cell.b) != finding.cell) continue;
      cell = *seen;
      if (finding.what == "cleared") cell.note = finding.text;
    }
  }
  gate.tripped = std::move(left);
  return gate;
}

Gate closed(Gate gate) {
  for (auto& finding : gate.findings)
    if (finding.what != kUnconfirmed && std::ranges::count(gate.tripped, finding.cell) > 0)
      leave_open(gate, finding, "no look was left that would confirm it");
  return gate;
}

}  // namespace dynamiccl
