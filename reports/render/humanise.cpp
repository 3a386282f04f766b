#include "reports/render/humanise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "reports/model/leaf_difference.hpp"
#include "reports/model/stored_command.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {
namespace {

std::string time_text(double us) { return format_micros(Micros(us)); }
std::string seconds_text(double s) { return format_micros(Micros(s * 1e6)); }
/// As it stands where that is short, else rounded: sums of traffic have no short exact form, and a
/// column in B, KiB and MiB by chance cannot be compared by eye.
std::string size_text(double bytes) {
  constexpr double kShort = 1e4;
  const double whole = std::max(0.0, bytes);
  if (whole < kShort) return format_bytes(Bytes(static_cast<std::uint64_t>(whole)));
  constexpr double kStep = 1024;
  constexpr std::array<std::pair<double, const char*>, 4> kScales{
      {{kStep * kStep * kStep * kStep, "TiB"},
       {kStep * kStep * kStep, "GiB"},
       {kStep * kStep, "MiB"},
       {kStep, "KiB"}}};
  const auto scale = std::find_if(kScales.begin(), kScales.end() - 1,
                                  [&](const auto& entry) { return whole >= entry.first; });
  const double scaled = whole / scale->first;
  return fmt::format(
      "{} {}", scaled == std::floor(scaled) ? fmt::format("{:.0f}", scaled) : format_number(scaled),
      scale->second);
}
std::string percent_text(double percent) { return format_number(percent) + " %"; }

std::string with_unit(double value, Unit unit) {
  switch (unit) {
    case Unit::microseconds:
      return time_text(value);
    case Unit::seconds:
      return seconds_text(value);
    case Unit::bytes:
      return size_text(value);
    case Unit::bytes_per_s:
      return format_bandwidth(value);
    case Unit::percent:
      return percent_text(value);
    case Unit::none:
      break;
  }
  return format_number(value);
}

std::string human_text(const Value& value, Unit unit, bool exact) {
  const auto* whole = std::get_if<std::int64_t>(&value);
  const auto* real = std::get_if<double>(&value);
  if (exact && whole != nullptr)
    return format_bytes(Bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(0, *whole))));
  if (real != nullptr) return with_unit(*real, unit);
  if (whole != nullptr && unit != Unit::none) return with_unit(static_cast<double>(*whole), unit);
  if (std::holds_alternative<std::monostate>(value)) return "-";
  return plain_text(value);
}

/// "batch=32 model=cnn"; a list is a command line.
std::string settings_text(const std::string& text) {
  if (text.starts_with("[")) return stored_command_line(text);
  const auto words = setting_words(text);
  return words.empty() ? "-" : join(words, " ");
}

/// One column of the result and where it comes from.
struct Source {
  std::string title;
  std::size_t value = 0;
  std::optional<std::size_t> low;
  std::optional<std::size_t> high;
  Unit unit = Unit::none;
  Shown shown = Shown::always;
  bool exact = false;     ///< as in Column
  bool if_room = false;   ///< as in Column
  bool settings = false;  ///< a JSON object of settings
};

/// The heading; where another column has the same ("send" and "send_us"), the whole name.
std::string title_of(const Column& column, const Columns& columns) {
  const auto has_it = [&](const Column& other) {
    return other.end_of.empty() && other.heading == column.heading;
  };
  return std::count_if(columns.begin(), columns.end(), has_it) > 1 ? column.name : column.heading;
}

std::vector<Source> sources_of(const Table& table, const Columns& columns) {
  std::vector<Source> sources;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const Column& column = columns[i];
    if (!column.end_of.empty() && column_index(table, column.end_of)) continue;
    Source source{title_of(column, columns),
                  i,
                  std::nullopt,
                  std::nullopt,
                  column.unit,
                  column.shown,
                  column.exact,
                  column.if_room,
                  column.type == ColumnType::json};
    if (!column.low.empty()) {
      source.low = column_index(table, column.low);
      source.high = column_index(table, column.high);
      if (source.low && source.high) source.title += " [interval]";
    }
    sources.push_back(source);
  }
  return sources;
}

/// The unit behind a number with its space, "" where there is none.
std::string_view unit_in(std::string_view text) {
  const auto space = text.find(' ');
  return space == std::string_view::npos ? "" : text.substr(space);
}

/// "12.3 us [11.9, 12.8]"; where a bound has a unit of its own, both show theirs: a bound without
/// one next to another unit would be taken for that.
/// @param words settings_text() of what was asked for: very many rows share few settings
std::string cell_text(const std::vector<Value>& row, const Source& source,
                      std::map<std::string, std::string>& words) {
  std::string text = human_text(row[source.value], source.unit, source.exact);
  if (source.settings) {
    const auto known = words.find(text);
    text = known != words.end() ? known->second
                                : words.emplace(text, settings_text(text)).first->second;
  }
  if (!source.low || !source.high) return text;
  if (std::holds_alternative<std::monostate>(row[*source.low])) return text;
  std::string low = human_text(row[*source.low], source.unit, false);
  std::string high = human_text(row[*source.high], source.unit, false);
  const std::string_view unit = unit_in(text);
  if (unit_in(low) == unit && unit_in(high) == unit) {
    low.resize(low.size() - unit.size());
    high.resize(high.size() - unit.size());
  }
  return fmt::format("{} [{}, {}]", text, low, high);
}

bool all_numbers(const Table& table, std::size_t column) {
  return std::none_of(table.rows.begin(), table.rows.end(), [&](const auto& row) {
    return std::holds_alternative<std::string>(row[column]);
  });
}

bool is_constant(const Table& table, std::size_t column) {
  return std::all_of(table.rows.begin(), table.rows.end(),
                     [&](const auto& row) { return row[column] == table.rows[0][column]; });
}

bool is_absent(const Table& table, std::size_t column) {
  return std::all_of(table.rows.begin(), table.rows.end(), [&](const auto& row) {
    return std::holds_alternative<std::monostate>(row[column]);
  });
}

std::string fixed_text(const std::string& column, const Value& value, bool settings) {
  const std::string plain = plain_text(value);
  if (plain.empty() || plain == "{}") return "";
  const std::string text = settings ? settings_text(plain) : plain;
  if (column == "in_place") return text == "0" ? "out of place" : "in place";
  std::string name = column;
  std::replace(name.begin(), name.end(), '_', ' ');
  return name + " " + text;
}

/// Takes the settings that all rows have alike out of a column of them, where others tell the rows
/// apart. @returns what they are, "" = nothing
std::string take_common_settings(Table& table, std::size_t column) {
  if (table.rows.size() < 2) return "";
  std::map<std::string, nlohmann::json> objects;  // by text: very many rows share few settings
  for (const auto& row : table.rows) {
    const std::string text = plain_text(row[column]);
    if (!objects.contains(text)) objects.emplace(text, json_or_discarded(text));
  }
  if (!std::ranges::all_of(objects, [](const auto& one) { return one.second.is_object(); }))
    return "";
  nlohmann::json common = objects.at(plain_text(table.rows.front()[column]));
  for (const auto& [text, one] : objects)
    for (auto at = common.begin(); at != common.end();)
      at = one.contains(at.key()) && one[at.key()] == *at ? std::next(at) : common.erase(at);
  if (common.empty()) return "";
  std::map<std::string, std::string> others;
  for (auto& [text, one] : objects) {
    for (const auto& [key, value] : common.items()) one.erase(key);
    others.emplace(text, one.dump());
  }
  for (auto& row : table.rows) row[column] = others.at(plain_text(row[column]));
  return settings_text(common.dump());
}

}  // namespace

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

std::string markdown_text(const std::string& text) {
  std::string out;
  for (const char c : one_line(text)) {
    if (c == '|' || c == '\\') out += '\\';
    if (c == '<') {
      out += "&lt;";
      continue;
    }
    out += c;
  }
  return out;
}

std::string format_number(double value) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  const double size = std::fabs(value);
  if (size >= 1e6 || size < 1e-3) return fmt::format("{:.3g}", value);
  const int digits = std::max(0, 2 - static_cast<int>(std::floor(std::log10(size))));
  return fmt::format("{:.{}f}", value, digits);
}

std::string format_bandwidth(double bytes_per_s) {
  constexpr std::array<std::pair<double, const char*>, 4> kScales{
      {{1e12, "TB/s"}, {1e9, "GB/s"}, {1e6, "MB/s"}, {1e3, "kB/s"}}};
  for (const auto& [scale, name] : kScales) {
    if (bytes_per_s >= scale) return fmt::format("{} {}", format_number(bytes_per_s / scale), name);
  }
  return fmt::format("{} B/s", format_number(bytes_per_s));
}

HumanTable humanise(const Table& original, const Columns& columns) {
  HumanTable human;
  Table table = original;
  auto sources = sources_of(table, describe(table.columns, columns));
  std::erase_if(sources, [](const Source& source) { return source.shown == Shown::for_programs; });
  if (table.rows.size() > 1) {
    const auto quiet = [&](const Source& source) {
      if (source.shown == Shown::where_told) return is_absent(table, source.value);
      if (source.shown == Shown::always || !is_constant(table, source.value)) return false;
      const auto& name = table.columns[source.value];
      const std::string text = fixed_text(name, table.rows[0][source.value], source.settings);
      if (!text.empty()) human.held_fixed += (human.held_fixed.empty() ? "" : ", ") + text;
      return true;
    };
    std::erase_if(sources, quiet);
  }
  for (const auto& source : sources)
    if (source.settings)
      if (const auto common = take_common_settings(table, source.value); !common.empty())
        human.held_fixed += (human.held_fixed.empty() ? "" : ", ") + common;
  for (const auto& source : sources) {
    human.columns.push_back(source.title);
    human.right.push_back(all_numbers(table, source.value));
    human.if_room.push_back(source.if_room);
  }
  std::map<std::string, std::string> words;
  for (const auto& row : table.rows) {
    auto& texts = human.rows.emplace_back();
    for (const auto& source : sources) texts.push_back(cell_text(row, source, words));
  }
  return human;
}

}  // namespace dynamiccl
