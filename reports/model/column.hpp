#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dynamiccl {

/// What the numbers of a column are; renderers choose the scale: 1500 us become 1.5 ms.
enum class Unit { none, microseconds, seconds, bytes, bytes_per_s, percent };
enum class ColumnType { text, integer, real, json };

/// When a table for people has a column.
enum class Shown {
  always,
  where_it_varies,  ///< printed once, above the table, where all rows agree
  where_told,       ///< left out where no row has a value
  for_programs      ///< never: another column tells people the same
};

/// What one column of a table holds. Its name is the key in JSON and CSV.
struct Column {
  std::string name;
  Unit unit = Unit::none;
  ColumnType type = ColumnType::text;
  std::string meaning;
  Shown shown = Shown::always;
  bool if_room = false;  ///< left out where the rows would not fit on a line with it
  bool exact = false;    ///< bytes that rows are distinguished by, or that are typed: never rounded
  std::string low;       ///< name of the column with the lower end of its interval; "" = has none
  std::string high;      ///< of the upper end
  std::string end_of;    ///< name of the column of whose interval this is an end; "" = none
  std::string heading;   ///< for people, whose cells bear the unit
};
using Columns = std::vector<Column>;

/// Columns as query files and model/columns.txt write them: names of shared columns, apart by
/// blanks, and lines "NAME | UNIT, TYPE, MORE | MEANING". "@axes" stands for the axes of a cell,
/// "@cell" for those and the regime, each behind run_id.
/// @param where for messages
/// @throws Error(bug) for what is none of this
Columns parse_columns(std::string_view text, const std::string& where);

/// What more than one table has (model/columns.txt).
const Columns& shared_columns();

/// These, then the shared ones.
Columns with_shared(Columns own);

/// An entry for each name: from `own`, or what `own` says of "*"; without `own` from the shared
/// ones; else a column without a unit.
Columns describe(const std::vector<std::string>& names, const Columns& own = {});

/// "us", "bytes per second", ""
std::string_view unit_text(Unit unit);
std::string_view type_text(ColumnType type);

}  // namespace dynamiccl
