#include "reports/model/cell_columns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {

void append_values(std::vector<Value>& row, std::vector<Value> more) {
  std::move(more.begin(), more.end(), std::back_inserter(row));
}

std::string joined_names(const std::set<std::string>& texts) {
  return join({texts.begin(), texts.end()}, ", ");
}

std::int64_t launches_of(const CellFigure& figure) {
  return static_cast<std::int64_t>(figure.launches.size());
}

std::string column_called(const std::string& name) { return name == "size" ? "size_bytes" : name; }

std::string stored_value(const std::string& column, const std::string& wanted) {
  if (column == "size_bytes") return std::to_string(parse_bytes(wanted).count());
  if (column == "in_place") {
    if (wanted == "true" || wanted == "1") return "1";
    if (wanted == "false" || wanted == "0") return "0";
    throw Error(ErrorKind::input, fmt::format("--where in_place={}: is either true (one buffer for "
                                              "both directions) or false",
                                              wanted));
  }
  if (column == "ranks") {
    std::int64_t ranks = 0;
    const auto* end = wanted.data() + wanted.size();
    if (std::from_chars(wanted.data(), end, ranks).ptr != end || ranks < 1)
      throw Error(ErrorKind::input,
                  fmt::format("--where ranks={}: expected a whole number of processes, as in "
                              "ranks=2",
                              wanted));
    return std::to_string(ranks);
  }
  return wanted;
}

std::vector<CellFigure> filter_figures(std::vector<CellFigure> figures,
                                       const CellConditions& where) {
  for (const auto& condition : where) {
    const std::string axis = column_called(condition.first);
    const std::string value = stored_value(axis, condition.second);
    // An unknown axis is a mistake also where there is no figure to look at.
    axis_value(CellFigure{}, axis);
    std::erase_if(figures, [&](const CellFigure& f) { return axis_value(f, axis) != value; });
  }
  return figures;
}

std::vector<Value> cell_values(const CellFigure& f) {
  return {f.run_id,
          f.environment,
          f.backend,
          f.architecture,
          f.collective,
          f.size_bytes,
          f.ranks,
          f.datatype,
          f.algorithm,
          f.in_place,
          f.group_knobs,
          f.cell_knobs,
          or_null(joined_names(f.regimes))};
}

std::string knobs_of(const CellFigure& f) {
  std::string text;
  for (const auto& knobs : {f.group_knobs, f.cell_knobs}) {
    if (knobs != "{}" && !knobs.empty()) text += (text.empty() ? "" : " ") + knobs;
  }
  return text;
}

std::string choice_of(const CellFigure& f) {
  std::string text = f.backend + " " + f.architecture;
  if (f.algorithm != "library") text += " " + f.algorithm;
  if (const auto knobs = knobs_of(f); !knobs.empty()) text += " " + knobs;
  return text;
}

}  // namespace dynamiccl
