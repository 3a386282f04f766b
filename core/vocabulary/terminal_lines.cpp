#include "core/vocabulary/terminal_lines.hpp"

#include <algorithm>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

constexpr std::string_view kMarks = " /|,;:=+_-";  ///< where a word may end

bool begins_code_point(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

/// Where the first `columns` of the text end, in bytes.
std::size_t bytes_of(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  for (std::size_t column = 0; column < columns && end < text.size(); ++column) {
    ++end;
    while (end < text.size() && !begins_code_point(text[end])) ++end;
  }
  return end;
}

/// Where a line that may have `end` bytes is best cut: a line of less than half of them looks torn,
/// a torn word more so.
std::size_t cut_of(std::string_view text, std::size_t end) {
  const auto blank = text.rfind(' ', end);
  const bool at_blank = blank != std::string_view::npos && blank > 0;
  if (at_blank && blank >= end / 2) return blank;
  const auto mark = text.find_last_of(kMarks.substr(1), end - 1);
  const bool at_mark = mark != std::string_view::npos;
  if (at_mark && mark >= end / 2) return mark + 1;
  // In the first half, where the word behind it has room in the next line: a word that goes on
  // beyond that has none.
  const auto near = text.substr(0, 2 * end + 1);
  const auto word_end = std::min(near.find_first_of(kMarks, end), near.size());
  if (at_mark && (!at_blank || mark > blank)) return word_end - mark <= end ? mark + 1 : end;
  return at_blank && word_end - blank - 1 <= end ? blank : end;
}

/// Where the last column of a line begins: behind the last two blanks that follow a word.
std::size_t last_column_of(std::string_view line) {
  const auto first = std::min(line.find_first_not_of(' '), line.size());
  const auto gap = line.rfind("  ");
  return gap == std::string_view::npos || gap < first ? first : gap + 2;
}

}  // namespace

std::size_t columns_of_text(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_code_point));
}

std::vector<std::string> broken_lines(std::string_view text, std::size_t columns) {
  columns = std::max<std::size_t>(columns, 1);
  std::vector<std::string> lines;
  for (auto end = bytes_of(text, columns); end < text.size(); end = bytes_of(text, columns)) {
    const auto cut = cut_of(text, end);
    lines.emplace_back(text.substr(0, cut));
    text.remove_prefix(text[cut] == ' ' ? cut + 1 : cut);
  }
  lines.emplace_back(text);
  return lines;
}

std::string broken_text(std::string_view text, std::size_t columns) {
  if (columns == 0) return std::string(text);
  std::string out;
  for (const auto& line : split(text, '\n')) {
    std::string head;
    if (columns_of_text(line) > columns) {
      const auto last = last_column_of(line);
      // A last column too narrow to be read goes on from the left.
      head = line.substr(0, last <= columns * 2 / 3 ? last : std::min<std::size_t>(4, columns / 2));
    }
    const std::string indent(columns_of_text(head), ' ');
    const auto lines = broken_lines(line.substr(head.size()), columns - indent.size());
    for (std::size_t i = 0; i < lines.size(); ++i)
      out += (i == 0 ? head : indent) + lines[i] + "\n";
  }
  out.pop_back();  // split has one more part than there are ends of lines
  return out;
}

std::string command_lines(std::string_view head, const std::vector<std::string>& words,
                          std::size_t columns) {
  constexpr std::string_view kGoesOn = " \\";
  const std::string indent(columns_of_text(head), ' ');
  std::string out;
  std::string line(head);
  bool begins = true;  // the line has no word yet
  for (const auto& word : words) {
    const std::size_t with = columns_of_text(line) + 1 + columns_of_text(word) + kGoesOn.size();
    if (columns > 0 && !begins && with > columns) {
      out += line + std::string(kGoesOn) + "\n";
      line = indent;
      begins = true;
    }
    line += (begins ? "" : " ") + word;
    begins = false;
  }
  return out + line + "\n";
}

}  // namespace dynamiccl
