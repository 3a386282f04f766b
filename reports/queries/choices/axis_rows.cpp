#include "reports/queries/choices/axis_rows.hpp"

#include <algorithm>

#include "core/vocabulary/units.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {

std::vector<std::string> value_columns(const std::string& axis,
                                       const std::vector<std::string>& values) {
  std::vector<std::string> names;
  for (const auto& value : values)
    names.push_back((axis == "size_bytes" ? format_bytes(Bytes(std::stoull(value))) : value) +
                    "_us");
  return names;
}

std::vector<Value> axis_row(const Alternatives& group, const std::string& axis,
                            const std::vector<std::string>& values) {
  const auto& axes = axis_names();
  const auto at = std::find(axes.begin(), axes.end(), axis) - axes.begin();
  auto row = cell_values(*group.listed.front());
  row.erase(row.begin() + 1 + at);  // behind run_id
  row.pop_back();
  for (const auto& value : values) {
    const auto found = std::find_if(group.listed.begin(), group.listed.end(),
                                    [&](const auto* f) { return axis_value(*f, axis) == value; });
    row.push_back(
        or_null(found == group.listed.end() ? std::nullopt : std::optional((*found)->median_us())));
  }
  if (is_choice(axis))
    append_values(row, {axis_value(*group.cells.front(), axis), sure_text(group.lead_is_sure),
                        or_null(cadence_text(group))});
  return row;
}

}  // namespace dynamiccl
