#include "reports/render/comparison_junit.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "reports/compare/comparison.hpp"
#include "reports/model/figures.hpp"

namespace dynamiccl {
namespace {

/// Text for XML 1.0, which has no place for control characters, not even escaped.
std::string xml(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string class_of(const CellFigure& f) {
  return fmt::format("{}.{}.{}", f.environment, f.backend, f.architecture);
}

std::string open_case(const std::string& class_name, const std::string& name, double seconds) {
  return fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.9f}\">", xml(class_name),
                     xml(name), seconds);
}

std::string name_of_case(const CellFigure& f) {
  std::string name = fmt::format("{} {}, {} ranks, {}", f.collective,
                                 format_bytes(Bytes(static_cast<std::uint64_t>(f.size_bytes))),
                                 f.ranks, f.datatype);
  if (f.algorithm != "library") name += ", " + f.algorithm;
  if (f.in_place != 0) name += ", in place";
  for (const auto& knobs : {f.group_knobs, f.cell_knobs}) {
    if (!knobs.empty() && knobs != "{}") name += ", " + knobs;
  }
  return name;
}

std::string ratio_text(const ComparedCell& cell) {
  std::string text = fmt::format("time of B / time of A = {:.4f}", cell.time_ratio.value);
  if (const auto& interval = cell.time_ratio.interval)
    text += fmt::format(" [{:.4f}, {:.4f}]", interval->low, interval->high);
  text += fmt::format(", A {}, B {}", format_micros(Micros(cell.a.median_us())),
                      format_micros(Micros(cell.b.median_us())));
  if (!cell.note.empty()) text += "; " + cell.note;
  if (cell.launches_needed)
    text += fmt::format("; about {} per side would settle it",
                        counted(*cell.launches_needed, "launch"));
  return text;
}

std::string outcome(const ComparedCell& cell) {
  const std::string text = xml(ratio_text(cell));
  if (cell.verdict == Verdict::slower)
    return fmt::format("<failure type=\"SLOWER\" message=\"{}\"/>", text);
  if (cell.verdict == Verdict::unclear && cell.fails_in_b())
    return fmt::format("<error type=\"LAUNCHES_FAILED\" message=\"{}\"/>", text);
  if (cell.verdict == Verdict::unclear || cell.verdict == Verdict::not_judged)
    return fmt::format("<skipped message=\"{}: {}\"/>", name_of(cell.verdict), text);
  return fmt::format("<system-out>{}: {}</system-out>", name_of(cell.verdict), text);
}

std::string document(const std::string& totals, const std::string& a, const std::string& b,
                     const std::string& cases) {
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {0}>\n  <testsuite name=\"{1}\" "
      "{0}>\n{2}  </testsuite>\n</testsuites>\n",
      totals, xml(fmt::format("dynamiccl compare {} {}", a, b)), cases);
}

}  // namespace

std::string comparison_junit(const Comparison& comparison) {
  const auto missing = missing_groups(comparison.missing);
  const auto unplanned = missing_groups(comparison.unplanned);
  const auto failed = static_cast<std::size_t>(std::count_if(
      comparison.cells.begin(), comparison.cells.end(),
      [](const auto& cell) { return cell.verdict == Verdict::unclear && cell.fails_in_b(); }));
  const auto unclear = static_cast<std::size_t>(comparison.count(Verdict::unclear) +
                                                comparison.count(Verdict::not_judged));
  const std::string totals =
      fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"",
                  comparison.cells.size() + missing.size() + unplanned.size(),
                  comparison.count(Verdict::slower), missing.size() + failed,
                  unclear - failed + unplanned.size());
  std::string cases;
  for (const auto& cell : comparison.cells)
    cases += open_case(class_of(cell.b), name_of_case(cell.b), cell.b.median_us() * 1e-6) +
             outcome(cell) + "</testcase>\n";
  for (const auto& group : missing) {
    cases += open_case(class_of(group.first), group.what, 0) +
             fmt::format("<error type=\"NO_RESULT\" message=\"no result in {}: {}\"/></testcase>\n",
                         group.missing_in, xml(group.reason));
  }
  for (const auto& group : unplanned)
    cases += open_case(class_of(group.first), group.what, 0) +
             fmt::format("<skipped message=\"not in {}'s plan\"/></testcase>\n", group.missing_in);
  return document(totals, comparison.a.selection.label, comparison.b.selection.label, cases);
}

std::string refusal_junit(const std::string& a, const std::string& b, const std::string& reason) {
  return document("tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\"", a, b,
                  fmt::format("    <testcase classname=\"dynamiccl\" name=\"compare\"><error "
                              "type=\"NOT_COMPARED\" message=\"{}\"/></testcase>\n",
                              xml(reason)));
}

}  // namespace dynamiccl
