#include "reports/model/column.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "embedded/columns.hpp"

namespace dynamiccl {
namespace {

struct NamedUnit {
  Unit unit;
  std::string_view name;  ///< in definitions
  std::string_view ends;  ///< what the name of such a column ends in
  std::string_view text;  ///< in documents
};
constexpr std::array kUnits{NamedUnit{Unit::none, "", "", ""},
                            NamedUnit{Unit::microseconds, "us", "_us", "us"},
                            NamedUnit{Unit::seconds, "s", "_s", "s"},
                            NamedUnit{Unit::bytes, "bytes", "_bytes", "bytes"},
                            NamedUnit{Unit::bytes_per_s, "bytes_per_s", "_bytes_per_s", "bytes/s"},
                            NamedUnit{Unit::percent, "percent", "_percent", "%"}};

const NamedUnit& row_of(Unit unit) {
  return *std::find_if(kUnits.begin(), kUnits.end(),
                       [&](const NamedUnit& row) { return row.unit == unit; });
}

constexpr std::array<std::pair<std::string_view, ColumnType>, 4> kTypes{
    {{"text", ColumnType::text},
     {"integer", ColumnType::integer},
     {"real", ColumnType::real},
     {"json", ColumnType::json}}};

/// The name without what its unit adds.
std::string stem_of(const Column& column) {
  const auto ends = row_of(column.unit).ends;
  const bool has = !ends.empty() && column.name.ends_with(ends);
  return column.name.substr(0, column.name.size() - (has ? ends.size() : 0));
}

Column end_column(const Column& of, const std::string& name, const char* which) {
  Column column;
  column.name = name;
  column.unit = of.unit;
  column.type = ColumnType::real;
  column.meaning = fmt::format("{} end of the interval of {}", which, of.name);
  column.shown = of.shown;
  column.if_room = of.if_room;
  column.end_of = of.name;
  column.heading = stem_of(column);
  return column;
}

void add_with_ends(Columns& columns, Column column) {
  const auto low = end_column(column, column.low, "lower");
  const auto high = end_column(column, column.high, "upper");
  columns.push_back(std::move(column));
  columns.push_back(low);
  columns.push_back(high);
}

Error mistake(const std::string& where, const std::string& what) {
  return Error(ErrorKind::bug, fmt::format("{}: columns: {}", where, what));
}

void read_property(Column& column, const std::string& word, const std::string& where) {
  const auto unit = std::find_if(kUnits.begin() + 1, kUnits.end(),
                                 [&](const NamedUnit& row) { return row.name == word; });
  const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](const auto& entry) { return entry.first == word; });
  if (unit != kUnits.end()) {
    column.unit = unit->unit;
  } else if (type != kTypes.end()) {
    column.type = type->second;
  } else if (word == "quiet") {
    column.shown = Shown::where_it_varies;
  } else if (word == "optional") {
    column.shown = Shown::where_told;
  } else if (word == "for_programs") {
    column.shown = Shown::for_programs;
  } else if (word == "if_room") {
    column.if_room = true;
  } else if (word == "exact") {
    column.exact = true;
  } else if (word == "interval") {
    column.low = column.high = "-";  // named when the unit is known
  } else if (word.starts_with("ends:")) {
    const auto ends = split(word, ':');
    if (ends.size() != 3) throw mistake(where, word);
    column.low = ends[1];
    column.high = ends[2];
  } else {
    throw mistake(where,
                  fmt::format("\"{}\" of {} is no unit, type or word for more", word, column.name));
  }
}

void add_defined(Columns& columns, const std::string& line, const std::string& where) {
  const auto parts = split(line, '|');
  if (parts.size() != 3) throw mistake(where, line);
  Column column;
  column.name = std::string(trim(parts[0]));
  column.meaning = std::string(trim(parts[2]));
  for (const auto& word : split(parts[1], ','))
    read_property(column, std::string(trim(word)), where);
  column.heading = stem_of(column);
  if (column.low == "-") {
    const std::string ends(row_of(column.unit).ends);
    column.low = column.heading + "_low" + ends;
    column.high = column.heading + "_high" + ends;
  }
  if (column.low.empty()) {
    columns.push_back(std::move(column));
  } else {
    add_with_ends(columns, std::move(column));
  }
}

const Column* find_column(const Columns& columns, std::string_view name) {
  const auto found = std::find_if(columns.begin(), columns.end(),
                                  [&](const Column& column) { return column.name == name; });
  return found == columns.end() ? nullptr : &*found;
}

constexpr std::array<std::string_view, 12> kCellAxes{
    "run_id", "environment", "backend",   "architecture", "collective",  "size_bytes",
    "ranks",  "datatype",    "algorithm", "in_place",     "group_knobs", "cell_knobs"};

void add_shared(Columns& columns, const std::string& name, const std::string& where) {
  if (name == "@axes" || name == "@cell") {
    for (const auto axis : kCellAxes) add_shared(columns, std::string(axis), where);
    if (name == "@cell") add_shared(columns, "regime", where);
    return;
  }
  const Column* known = find_column(shared_columns(), name);
  if (known == nullptr)
    throw mistake(where,
                  fmt::format("\"{}\" is no shared column (reports/model/columns.txt)", name));
  columns.push_back(*known);
  if (known->low.empty()) return;
  columns.push_back(*find_column(shared_columns(), known->low));
  columns.push_back(*find_column(shared_columns(), known->high));
}

}  // namespace

Columns parse_columns(std::string_view text, const std::string& where) {
  Columns columns;
  for (const auto& line : split(std::string(text), '\n')) {
    if (line.starts_with("#") || trim(line).empty()) continue;
    if (line.find('|') != std::string::npos) {
      add_defined(columns, line, where);
      continue;
    }
    for (const auto& name : split(line, ' '))
      if (!name.empty()) add_shared(columns, name, where);
  }
  return columns;
}

const Columns& shared_columns() {
  static const Columns columns = parse_columns(embedded::columns, "reports/model/columns.txt");
  return columns;
}

Columns with_shared(Columns own) {
  const auto& shared = shared_columns();
  own.insert(own.end(), shared.begin(), shared.end());
  return own;
}

Columns describe(const std::vector<std::string>& names, const Columns& own) {
  const Columns& known = own.empty() ? shared_columns() : own;
  const Column* other = find_column(known, "*");
  Columns found;
  for (const auto& name : names) {
    const Column* column = find_column(known, name);
    if (column == nullptr) column = other;
    Column entry = column == nullptr ? Column{} : *column;
    entry.name = name;
    if (column == nullptr || column == other) entry.heading = stem_of(entry);
    found.push_back(std::move(entry));
  }
  return found;
}

std::string_view unit_text(Unit unit) { return row_of(unit).text; }

std::string_view type_text(ColumnType type) {
  return std::find_if(kTypes.begin(), kTypes.end(),
                      [&](const auto& entry) { return entry.second == type; })
      ->first;
}

}  // namespace dynamiccl
