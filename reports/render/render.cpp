#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <set>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/terminal_lines.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/table_view.hpp"
#include "reports/render/humanise.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kFoldIndent = 4;

void append_padded(std::string& line, std::string_view text, std::size_t width, bool right) {
  const std::size_t blanks = width - std::min(width, columns_of_text(text));
  if (right) line.append(blanks, ' ');
  line += text;
  if (!right) line.append(blanks, ' ');
}

std::vector<std::size_t> widths_of(const HumanTable& table) {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    std::size_t width = columns_of_text(table.columns[i]);
    for (const auto& row : table.rows) width = std::max(width, columns_of_text(row[i]));
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

/// Ids of runs by their beginnings, which commands take too, where those tell them apart.
void shorten_runs(HumanTable& table) {
  constexpr std::size_t kBeginning = 8;
  const auto column = std::find(table.columns.begin(), table.columns.end(), "run_id");
  if (column == table.columns.end()) return;
  const auto at = static_cast<std::size_t>(column - table.columns.begin());
  std::set<std::string> whole;
  std::set<std::string> beginnings;
  for (const auto& row : table.rows) {
    whole.insert(row[at]);
    beginnings.insert(row[at].substr(0, kBeginning));
  }
  if (beginnings.size() < whole.size()) return;
  for (auto& row : table.rows) row[at].resize(std::min(row[at].size(), kBeginning));
}

/// Moments to the second, as two words: "2026-11-27 08:36:25" of 2026-11-27T08:36:25.191Z. The
/// heading says that they are UTC.
void shorten_moments(HumanTable& table) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00.000Z";
  const auto is_moment = [&](const std::string& cell) {
    if (cell.size() != kForm.size()) return false;
    for (std::size_t i = 0; i < kForm.size(); ++i)
      if (kForm[i] == '0' ? cell[i] < '0' || cell[i] > '9' : cell[i] != kForm[i]) return false;
    return true;
  };
  for (auto& row : table.rows)
    for (auto& cell : row)
      if (is_moment(cell)) cell = cell.substr(0, 10) + " " + cell.substr(11, 8);
}

/// The widest piece of a heading, which is a name: "interval_method".
std::size_t widest_piece(const std::string& heading) {
  std::size_t widest = 0;
  for (const auto& word : split(heading, ' '))
    for (const auto& piece : split(word, '_'))
      widest = std::max(widest, columns_of_text(piece) + (piece.size() < word.size() ? 1 : 0));
  return widest;
}

/// The widest piece of a cell that no line may end in, as far as it is a word: a path is none.
std::size_t widest_word(const std::string& cell) {
  constexpr std::size_t kWord = 18;
  std::size_t widest = 0;
  std::size_t begin = 0;
  while (begin < cell.size()) {
    const auto end = std::min(cell.find_first_of(" /|,;:=+_-", begin), cell.size());
    const std::size_t mark = end < cell.size() && cell[end] != ' ' ? 1 : 0;
    const std::size_t width = columns_of_text(cell.substr(begin, end - begin)) + mark;
    if (width <= kWord) widest = std::max(widest, width);
    begin = end + 1;
  }
  return widest;
}

/// How narrow a column may become: text breaks into lines, of numbers the heading alone does.
std::vector<std::size_t> least_widths(const HumanTable& table,
                                      const std::vector<std::size_t>& widths) {
  constexpr std::size_t kText = 10;
  std::vector<std::size_t> least;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    std::size_t width = widest_piece(table.columns[i]);
    if (!table.right[i]) width = std::max(width, kText);
    for (const auto& row : table.rows)
      width = std::max(width, table.right[i] ? columns_of_text(row[i]) : widest_word(row[i]));
    least.push_back(std::min(width, widths[i]));
  }
  return least;
}

/// Takes columns down to what fits, as far as they may: headings of numbers, then the widest text.
void fit_widths(const std::vector<bool>& right, const std::vector<std::size_t>& least,
                std::vector<std::size_t>& widths, std::size_t width) {
  for (std::size_t i = 0; i < widths.size(); ++i)
    widths[i] = std::min(widths[i], std::max(width, least[i]));  // more fits in no table
  for (const bool numbers : {true, false})
    while (width_of_line(widths) > width) {
      std::size_t widest = widths.size();
      for (std::size_t i = 0; i < widths.size(); ++i)
        if (right[i] == numbers && widths[i] > least[i] &&
            (widest == widths.size() || widths[i] > widths[widest]))
          widest = i;
      if (widest == widths.size()) break;
      --widths[widest];
    }
}

/// What is known of a table's columns when all cells were looked at once: there may be a hundred
/// thousand rows.
struct ColumnWidths {
  std::vector<bool> right;
  std::vector<std::size_t> widths;
  std::vector<std::size_t> least;
};

ColumnWidths column_widths(const HumanTable& table) {
  ColumnWidths columns{table.right, widths_of(table), {}};
  columns.least = least_widths(table, columns.widths);
  return columns;
}

std::vector<std::size_t> fitted_widths(const ColumnWidths& columns, std::size_t width) {
  auto widths = columns.widths;
  fit_widths(columns.right, columns.least, widths, width);
  return widths;
}

ColumnWidths part_of(const ColumnWidths& columns, std::size_t begin, std::size_t end) {
  const auto some = [&](const auto& all) {
    using Offset = std::ptrdiff_t;
    return std::decay_t<decltype(all)>(all.begin() + static_cast<Offset>(begin),
                                       all.begin() + static_cast<Offset>(end));
  };
  return {some(columns.right), some(columns.widths), some(columns.least)};
}

/// Columns of the table that stand on one line of each row.
struct Fold {
  std::size_t begin = 0;  ///< the first of them
  std::vector<bool> right;
  std::vector<std::size_t> widths;
};

/// As many columns as fit on a line, the others below them, further in: a row stays together below
/// its first columns, which name it.
std::vector<Fold> folds_of(const ColumnWidths& columns, std::size_t width) {
  std::vector<Fold> folds;
  const auto widths = fitted_widths(columns, width);
  std::size_t begin = 0;
  while (begin < widths.size()) {
    const std::size_t room = width - std::min(width, folds.empty() ? 0 : kFoldIndent);
    std::size_t end = begin;
    std::size_t sum = 0;
    do sum += widths[end++] + 2;
    while (end < widths.size() && sum + widths[end] <= room);
    const ColumnWidths part = part_of(columns, begin, end);
    Fold& fold = folds.emplace_back(Fold{begin, part.right, fitted_widths(part, room)});
    if (fold.widths.size() == 1)
      fold.widths[0] = std::min(fold.widths[0], std::max(room, std::size_t{1}));
    begin = end;
  }
  return folds;
}

/// One row, in as many lines as its cells need.
std::string row_text(const std::vector<bool>& right, std::span<const std::string> cells,
                     const std::vector<std::size_t>& widths, std::size_t indent = 0) {
  std::vector<std::vector<std::string>> pieces;
  std::size_t lines = 1;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    pieces.push_back(broken_lines(cells[i], widths[i]));
    lines = std::max(lines, pieces.back().size());
  }
  std::string out;
  for (std::size_t line = 0; line < lines; ++line) {
    std::string text(indent, ' ');
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) text += "  ";
      append_padded(text, line < pieces[i].size() ? std::string_view(pieces[i][line]) : "",
                    widths[i], right[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  return out;
}

/// Headings, a rule and the rows.
std::string lines_of(const HumanTable& table, const std::vector<std::size_t>& widths) {
  std::string out = row_text(table.right, table.columns, widths);
  std::vector<std::string> rules;
  for (const auto one : widths) rules.emplace_back(one, '-');
  out += row_text(table.right, rules, widths);
  for (const auto& row : table.rows) out += row_text(table.right, row, widths);
  return out;
}

void drop_column(HumanTable& table, std::size_t column) {
  const auto drop = [&](auto& of) { of.erase(of.begin() + static_cast<std::ptrdiff_t>(column)); };
  drop(table.columns);
  drop(table.right);
  drop(table.if_room);
  for (auto& row : table.rows) drop(row);
}

/// Leaves out columns that may be, the last first, where then each row fits on a line; else none: a
/// row that folds anyway has room for all. @returns what was left out, as a line below the table
std::string make_room(HumanTable& table, ColumnWidths& columns, std::size_t width) {
  ColumnWidths left = columns;
  const auto fits = [&] { return width_of_line(fitted_widths(left, width)) <= width; };
  std::vector<std::size_t> left_out;
  std::string dropped;
  for (std::size_t i = table.columns.size(); i-- > 0 && !fits();) {
    if (!table.if_room[i]) continue;
    dropped = table.columns[i] + (dropped.empty() ? "" : ", ") + dropped;
    left_out.push_back(i);
    const auto at = static_cast<std::ptrdiff_t>(i);
    left.right.erase(left.right.begin() + at);
    left.widths.erase(left.widths.begin() + at);
    left.least.erase(left.least.begin() + at);
  }
  if (dropped.empty() || !fits()) return "";
  for (const std::size_t column : left_out) drop_column(table, column);
  columns = std::move(left);
  return fmt::format("no room at {} columns for {}; --format csv has all\n", width, dropped);
}

/// The lines of a table that is wider than the terminal.
std::string narrow_lines(const HumanTable& table, const ColumnWidths& columns, std::size_t width) {
  const auto widths = fitted_widths(columns, width);
  if (width_of_line(widths) <= width) return lines_of(table, widths);
  const auto folds = folds_of(columns, width);
  std::string out;
  const auto add = [&](const std::vector<std::string>& cells) {
    for (const auto& fold : folds)
      out += row_text(fold.right, std::span(cells).subspan(fold.begin, fold.widths.size()),
                      fold.widths, &fold == &folds.front() ? 0 : kFoldIndent);
  };
  add(table.columns);
  out += std::string(width, '-') + "\n";
  for (const auto& row : table.rows) add(row);
  return out;
}

std::string text_table(const Table& table, const Columns& columns, std::size_t width) {
  if (table.columns.empty()) return "";
  HumanTable human = humanise(table, columns);
  if (human.rows.empty()) return "(no rows)\n";
  for (auto& row : human.rows) std::transform(row.begin(), row.end(), row.begin(), one_line);
  const auto widths = widths_of(human);
  const bool narrow = width > 0 && width_of_line(widths) > width;
  std::string legend;
  ColumnWidths columns_now;
  if (narrow) {
    legend = shorten_regimes(human);
    shorten_runs(human);
    shorten_moments(human);
    columns_now = column_widths(human);
    const std::string left_out = make_room(human, columns_now, width);
    if (std::ranges::count(human.columns, "regime") == 0) legend.clear();
    legend += left_out;
  }
  const std::string fixed =
      human.held_fixed.empty() ? "" : broken_text("held fixed: " + human.held_fixed + "\n", width);
  return fixed + (narrow ? narrow_lines(human, columns_now, width) : lines_of(human, widths)) +
         broken_text(legend, width);
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
  if (!human.held_fixed.empty()) out += "Held fixed: " + human.held_fixed + ".\n\n";
  line(human.columns);
  out += "|";
  for (const bool right : human.right) out += right ? "---:|" : "---|";
  out += "\n";
  for (const auto& row : human.rows) line(row);
  return out;
}

/// Whether a line of it begins as what a spreadsheet computes or, of a cell that was taken apart at
/// its line breaks, would.
bool begins_as_formula(std::string_view text) {
  constexpr std::string_view kBegins = "=+-@|\t";
  for (std::size_t at = 0; at < text.size(); ++at)
    if ((at == 0 || text[at - 1] == '\n') && kBegins.find(text[at]) != std::string_view::npos)
      return true;
  return false;
}

/// A text that a spreadsheet would compute: shown as text by the apostrophe that they all know.
std::string without_formula(const std::string& text) {
  if (!begins_as_formula(text)) return text;
  double number = 0;
  const auto parsed = std::from_chars(text.data() + (text.front() == '+' ? 1 : 0),
                                      text.data() + text.size(), number);
  const bool is_number = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  return is_number ? text : "'" + text;
}

std::string csv_field(const std::string& original) {
  const std::string text = without_formula(printable(original));
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

/// An object has one value of a name: another would be lost without a word.
void refuse_equal_names(const std::vector<std::string>& names) {
  std::set<std::string> seen;
  for (const auto& name : names)
    if (!seen.insert(name).second)
      throw Error(ErrorKind::input,
                  fmt::format("two columns are called \"{}\", of which JSON would keep one; name "
                              "them apart in the SQL, as in SELECT a AS first, b AS second",
                              name));
}

std::string json_table(const Table& table) {
  refuse_equal_names(table.columns);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& row : table.rows) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    // Names differ, so that none is looked for among those before it.
    auto& members = object.get_ref<nlohmann::ordered_json::object_t&>();
    members.reserve(row.size());
    for (std::size_t i = 0; i < row.size(); ++i)
      members.emplace_back(table.columns[i], json_value(row[i]));
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
