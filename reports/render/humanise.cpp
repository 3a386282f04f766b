#include "reports/render/humanise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>

#include "core/vocabulary/units.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {
namespace {

/// Columns that say nothing in a row when all rows agree; they go into one line instead.
constexpr std::array<std::string_view, 10> kQuiet{
    "regime",      "ranks",      "datatype",   "algorithm",       "in_place",
    "group_knobs", "cell_knobs", "confidence", "interval_method", "ratio_method"};

/// Columns for what only some runs have; left out where no row has it.
constexpr std::array<std::string_view, 12> kOptional{
    "note",          "model",        "batch", "setting",      "left_by_search", "before",
    "faster_before", "ratio_before", "after", "faster_after", "ratio_after",    "crossover_bytes"};

struct Unit {
  std::string_view suffix;
  std::string (*format)(double);
};

std::string time_text(double us) { return format_micros(Micros(us)); }
std::string seconds_text(double s) { return format_micros(Micros(s * 1e6)); }
std::string size_text(double bytes) {
  return format_bytes(Bytes(static_cast<std::uint64_t>(std::max(0.0, bytes))));
}
std::string percent_text(double percent) { return format_number(percent) + " %"; }

/// The longer suffix first: "_bytes_per_s" also ends in "_s".
constexpr std::array kUnits{Unit{"_bytes_per_s", format_bandwidth}, Unit{"_bytes", size_text},
                            Unit{"_percent", percent_text}, Unit{"_us", time_text},
                            Unit{"_s", seconds_text}};

bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() > suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

const Unit* unit_of(std::string_view column) {
  const auto* found = std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& unit) {
    return ends_with(column, unit.suffix);
  });
  return found == kUnits.end() ? nullptr : found;
}

std::string human_text(const Value& value, const Unit* unit) {
  const auto* whole = std::get_if<std::int64_t>(&value);
  const auto* real = std::get_if<double>(&value);
  if (unit != nullptr && (whole != nullptr || real != nullptr)) {
    return unit->format(real != nullptr ? *real : static_cast<double>(*whole));
  }
  if (real != nullptr) return format_number(*real);
  if (std::holds_alternative<std::monostate>(value)) return "-";
  return plain_text(value);
}

/// One column of the result and where it comes from.
struct Source {
  std::string title;
  std::size_t value = 0;
  std::optional<std::size_t> low;
  std::optional<std::size_t> high;
  const Unit* unit = nullptr;
};

/// "median_us" has its interval in "median_low_us", "ratio" in "ratio_low".
std::optional<std::size_t> bound_of(const Table& table, const std::string& column, const Unit* unit,
                                    const std::string& bound) {
  const std::string suffix = unit == nullptr ? "" : std::string(unit->suffix);
  const std::string stem = column.substr(0, column.size() - suffix.size());
  return column_index(table, stem + "_" + bound + suffix);
}

std::vector<Source> sources_of(const Table& table) {
  std::vector<Source> sources;
  std::set<std::size_t> taken;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const auto& column = table.columns[i];
    Source source{column, i, std::nullopt, std::nullopt, unit_of(column)};
    source.low = bound_of(table, column, source.unit, "low");
    source.high = bound_of(table, column, source.unit, "high");
    if (source.unit != nullptr) {
      source.title = column.substr(0, column.size() - source.unit->suffix.size());
    }
    if (source.low && source.high) {
      taken.insert({*source.low, *source.high});
      source.title += " [interval]";
    }
    sources.push_back(source);
  }
  std::vector<Source> kept;
  for (const auto& source : sources) {
    if (!taken.contains(source.value)) kept.push_back(source);
  }
  return kept;
}

/// The unit behind a number with its space, "" where there is none.
std::string_view unit_in(std::string_view text) {
  const auto space = text.find(' ');
  return space == std::string_view::npos ? "" : text.substr(space);
}

/// "12.3 us [11.9, 12.8]"; where a bound has a unit of its own, both show theirs: a bound without
/// one beside another unit would be taken for that.
std::string cell_text(const std::vector<Value>& row, const Source& source) {
  std::string text = human_text(row[source.value], source.unit);
  if (!source.low || !source.high) return text;
  if (std::holds_alternative<std::monostate>(row[*source.low])) return text;
  std::string low = human_text(row[*source.low], source.unit);
  std::string high = human_text(row[*source.high], source.unit);
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
  return std::find(kOptional.begin(), kOptional.end(), table.columns[column]) != kOptional.end() &&
         std::all_of(table.rows.begin(), table.rows.end(), [&](const auto& row) {
           return std::holds_alternative<std::monostate>(row[column]);
         });
}

std::string fixed_text(const std::string& column, const Value& value) {
  const std::string text = plain_text(value);
  if (text.empty() || text == "{}") return "";
  if (column == "in_place") return text == "0" ? "out of place" : "in place";
  std::string name = column;
  std::replace(name.begin(), name.end(), '_', ' ');
  return name + " " + text;
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

HumanTable humanise(const Table& table) {
  HumanTable human;
  auto sources = sources_of(table);
  if (table.rows.size() > 1) {
    const auto quiet = [&](const Source& source) {
      if (is_absent(table, source.value)) return true;
      const auto& name = table.columns[source.value];
      if (std::find(kQuiet.begin(), kQuiet.end(), name) == kQuiet.end()) return false;
      if (!is_constant(table, source.value)) return false;
      const std::string text = fixed_text(name, table.rows[0][source.value]);
      if (!text.empty()) human.held_fixed += (human.held_fixed.empty() ? "" : ", ") + text;
      return true;
    };
    std::erase_if(sources, quiet);
  }
  for (const auto& source : sources) {
    human.columns.push_back(source.title);
    human.right.push_back(all_numbers(table, source.value));
  }
  for (const auto& row : table.rows) {
    auto& texts = human.rows.emplace_back();
    for (const auto& source : sources) texts.push_back(cell_text(row, source));
  }
  return human;
}

}  // namespace dynamiccl
