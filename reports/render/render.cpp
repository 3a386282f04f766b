#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/table_view.hpp"
#include "reports/render/humanise.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {
namespace {

/// Terminal columns, near enough: code points.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string padded(const std::string& text, std::size_t width, bool right, bool last) {
  const std::string blanks(width - std::min(width, width_of(text)), ' ');
  if (right) return blanks + text;
  return last ? text : text + blanks;
}

std::vector<std::size_t> widths_of(const HumanTable& table) {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    std::size_t width = width_of(table.columns[i]);
    for (const auto& row : table.rows) width = std::max(width, width_of(row[i]));
    widths.push_back(width);
  }
  return widths;
}

std::size_t width_of_line(const std::vector<std::size_t>& widths) {
  std::size_t sum = widths.empty() ? 0 : 2 * (widths.size() - 1);
  for (const auto width : widths) sum += width;
  return sum;
}

/// Regimes as r1, r2 ...; what those are. A name is as wide as a terminal is half.
std::string shorten_regimes(HumanTable& table) {
  const auto column = std::find(table.columns.begin(), table.columns.end(), "regime");
  if (column == table.columns.end()) return "";
  const auto at = static_cast<std::size_t>(column - table.columns.begin());
  std::vector<std::string> names;
  for (auto& row : table.rows) {
    auto found = std::find(names.begin(), names.end(), row[at]);
    if (found == names.end()) found = names.insert(names.end(), row[at]);
    row[at] = fmt::format("r{}", found - names.begin() + 1);
  }
  std::string legend;
  for (std::size_t i = 0; i < names.size(); ++i)
    legend += fmt::format("regime r{}: {}\n", i + 1, names[i]);
  return legend;
}

/// Takes columns of text, the widest first, down to what fits. Numbers keep theirs, so that a table
/// of many stays wider.
void fit_widths(const HumanTable& table, std::vector<std::size_t>& widths, std::size_t width) {
  constexpr std::size_t kLeast = 8;
  while (width_of_line(widths) > width) {
    std::size_t widest = widths.size();
    for (std::size_t i = 0; i < widths.size(); ++i)
      if (!table.right[i] && widths[i] > kLeast &&
          (widest == widths.size() || widths[i] > widths[widest]))
        widest = i;
    if (widest == widths.size()) return;
    --widths[widest];
  }
}

/// A text in pieces of at most `width` columns, between words where that can be.
std::vector<std::string> pieces_of(std::string text, std::size_t width) {
  std::vector<std::string> pieces;
  while (width_of(text) > width) {
    std::size_t end = 0;
    for (std::size_t columns = 0; columns < width; ++columns)
      while (++end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) {
      }
    const auto blank = text.rfind(' ', end);
    const std::size_t cut = blank == std::string::npos || blank < end / 2 ? end : blank;
    pieces.push_back(text.substr(0, cut));
    text.erase(0, cut == blank ? cut + 1 : cut);
  }
  pieces.push_back(std::move(text));
  return pieces;
}

/// One row, in as many lines as its cells need.
std::string row_text(const HumanTable& table, const std::vector<std::string>& cells,
                     const std::vector<std::size_t>& widths) {
  std::vector<std::vector<std::string>> pieces;
  std::size_t lines = 1;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    pieces.push_back(pieces_of(cells[i], std::max<std::size_t>(widths[i], 1)));
    lines = std::max(lines, pieces.back().size());
  }
  std::string out;
  for (std::size_t line = 0; line < lines; ++line) {
    std::string text;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) text += "  ";
      text += padded(line < pieces[i].size() ? pieces[i][line] : "", widths[i], table.right[i],
                     i + 1 == cells.size());
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  return out;
}

std::string text_table(const Table& table, const Columns& columns, std::size_t width) {
  if (table.columns.empty()) return "";
  HumanTable human = humanise(table, columns);
  for (auto& row : human.rows) std::transform(row.begin(), row.end(), row.begin(), one_line);
  auto widths = widths_of(human);
  std::string legend;
  if (width > 0 && width_of_line(widths) > width) {
    legend = shorten_regimes(human);
    widths = widths_of(human);
    fit_widths(human, widths, width);
  }
  std::string out = row_text(human, human.columns, widths);
  std::vector<std::string> rules;
  for (const auto one : widths) rules.emplace_back(one, '-');
  out += row_text(human, rules, widths);
  for (const auto& row : human.rows) out += row_text(human, row, widths);
  if (human.rows.empty()) out += "(no rows)\n";
  if (!human.held_fixed.empty()) out += "held fixed: " + human.held_fixed + "\n";
  return out + legend;
}

std::string markdown_table(const Table& table, const Columns& columns) {
  if (table.columns.empty()) return "";
  const HumanTable human = humanise(table, columns);
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    out += "|";
    for (const auto& cell : cells) out += " " + markdown_text(cell) + " |";
    out += "\n";
  };
  line(human.columns);
  out += "|";
  for (const bool right : human.right) out += right ? "---:|" : "---|";
  out += "\n";
  for (const auto& row : human.rows) line(row);
  if (!human.held_fixed.empty()) out += "\nHeld fixed: " + human.held_fixed + ".\n";
  return out;
}

/// A text that a spreadsheet would compute: shown as text by the apostrophe that they all know.
std::string without_formula(const std::string& text) {
  if (text.empty() || std::string_view("=+-@\t\r").find(text.front()) == std::string_view::npos)
    return text;
  double number = 0;
  const auto parsed = std::from_chars(text.data() + (text.front() == '+' ? 1 : 0),
                                      text.data() + text.size(), number);
  const bool is_number = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  return is_number ? text : "'" + text;
}

std::string csv_field(const std::string& original) {
  const std::string text = without_formula(original);
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

/// RFC 4180: CRLF, quotes doubled; NULL is an empty field.
std::string csv_table(const Table& table) {
  std::string out;
  const auto line = [&](const std::vector<std::string>& fields) {
    std::vector<std::string> quoted;
    for (const auto& field : fields) quoted.push_back(csv_field(field));
    out += join(quoted, ",") + "\r\n";
  };
  line(table.columns);
  for (const auto& row : table.rows) {
    std::vector<std::string> fields;
    for (const auto& value : row) fields.push_back(plain_text(value));
    line(fields);
  }
  return out;
}

nlohmann::ordered_json json_value(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return nullptr;
}

std::string json_table(const Table& table) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& row : table.rows) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (std::size_t i = 0; i < row.size(); ++i) object[table.columns[i]] = json_value(row[i]);
    list.push_back(std::move(object));
  }
  return list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string render_table(const Table& table, OutputFormat format, const Columns& columns,
                         std::size_t width) {
  switch (format) {
    case OutputFormat::markdown:
      return markdown_table(table, columns);
    case OutputFormat::csv:
      return csv_table(table);
    case OutputFormat::json:
      return json_table(table);
    case OutputFormat::text:
      break;
  }
  return text_table(table, columns, width);
}

}  // namespace dynamiccl
