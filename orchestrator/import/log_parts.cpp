#include "orchestrator/import/log_parts.hpp"

#include <iconv.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/import/foreign_table.hpp"

namespace dynamiccl {
namespace {

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char letter) {
    return std::isdigit(letter) != 0;
  });
}

/// The texts within quotes of a line that are no keys of an object.
std::vector<std::string> quoted_texts(std::string_view line) {
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const char quote = line[at];
    if (quote != '"' && quote != '\'') continue;
    std::string quoted = "\"";
    for (++at; at < line.size() && line[at] != quote; ++at) {
      // Python prints a text between either sign, JSON knows one.
      if (line[at] == '"' || (line[at] == '\\' && at + 1 < line.size() && line[at + 1] != '\''))
        quoted += '\\';
      if (line[at] == '\\' && at + 1 < line.size()) ++at;
      quoted += line[at];
    }
    const auto next = line.find_first_not_of(" \t", at + 1);
    const auto text = json_or_discarded(quoted + "\"");
    if (text.is_string() && (next == std::string_view::npos || line[next] != ':'))
      texts.push_back(text.get<std::string>());
  }
  return texts;
}

/// Where "host:pid:tid [gpu] NCCL INFO ..." begins in a line.
struct LogPlace {
  std::size_t begin = std::string::npos;  ///< of the word that ends with the host's name
  std::string word;                       ///< it, without the numbers of process and thread
  bool stamped = false;  ///< a time in brackets stands before it, with which the log begins
};

LogPlace nccl_log_in(std::string_view line) {
  const auto level = line.find(" NCCL ");
  const auto open = level == std::string_view::npos ? level : line.rfind(" [", level);
  if (open == std::string_view::npos || open == 0) return {};
  const auto blank = line.find_last_of(" \t", open - 1);
  const auto begin = blank == std::string_view::npos ? 0 : blank + 1;
  const auto word = line.substr(begin, open - begin);
  const auto thread = word.rfind(':');
  const auto process = thread == std::string_view::npos ? thread : word.rfind(':', thread - 1);
  if (process == std::string_view::npos || !is_digits(word.substr(thread + 1)) ||
      !is_digits(word.substr(process + 1, thread - process - 1)))
    return {};
  const std::string host(word.substr(0, process));
  if (trim(line.substr(0, begin)).ends_with(']')) return {line.rfind('[', begin), host, true};
  return {begin, host, false};
}

/// The start of a row before a log line; nullopt where there is none or it cannot be found.
std::optional<std::string> row_before(const std::string& line, const LogPlace& log,
                                      const std::set<std::string>& hosts) {
  const auto before = line.substr(0, log.begin);
  const auto words = words_of(before);
  if (std::count_if(words.begin(), words.end(),
                    [](const std::string& word) { return number_of(word).has_value(); }) < 2)
    return std::nullopt;
  // Of values only these begin with a letter.
  const auto name = lower_case(log.word);
  const bool is_host = !name.empty() && std::isalpha(static_cast<unsigned char>(name[0])) != 0 &&
                       !name.starts_with("n/a") && !name.starts_with("nan") &&
                       !name.starts_with("inf");
  if (log.stamped || is_host || hosts.contains(log.word)) return before;
  std::set<std::string> values;
  for (const auto& host : hosts)
    if (log.word.ends_with(host)) values.insert(log.word.substr(0, log.word.size() - host.size()));
  // One digit before a letter can be nothing else than a number of one digit.
  const std::size_t sign = log.word.starts_with('-') ? 1 : 0;
  if (values.empty() && log.word.size() > sign + 1 && is_digits(log.word.substr(sign, 1)) &&
      std::isalpha(static_cast<unsigned char>(log.word[sign + 1])) != 0)
    values.insert(log.word.substr(0, sign + 1));
  if (values.size() != 1 || (!number_of(*values.begin()) && *values.begin() != "N/A"))
    return std::nullopt;
  return before + *values.begin();
}

std::vector<std::string> cells_of(const std::string& line, char sign) {
  std::string text(trim(line));
  if (sign == '|' && text.starts_with('|')) text.erase(0, 1);
  if (sign == '|' && text.ends_with('|')) text.pop_back();
  auto cells = split(text, sign);
  for (auto& cell : cells) {
    cell = without_quotes_behind(std::string(trim(cell)));
    cell.erase(0, std::min(cell.find_first_not_of('"'), cell.size()));
    if (cell.empty()) cell = "N/A";
  }
  return cells;
}

}  // namespace

std::size_t heading_place(std::string_view line) {
  for (auto at = line.find('#'); at != std::string_view::npos; at = line.find('#', at + 1)) {
    const auto rest = line.substr(at);
    const auto words = words_of(std::string(rest.substr(0, 160)));
    if (words[0] == "#bytes" || words[0] == "#repetitions") {
      // perftest has "#iterations" there.
      if (words.size() < 2 || (words[0] == "#bytes" && words[1] == "#iterations"))
        return std::string_view::npos;
      const auto group = line.substr(0, at).find_last_not_of(" \t");
      const bool grouped =
          group != std::string_view::npos && group >= 4 && line.substr(group - 4, 5) == "Group";
      return grouped ? group - 4 : at;
    }
    // The Intel MPI Benchmarks' second column; every heading of theirs begins with another.
    if (rest.starts_with("#wrong")) break;
    const auto names = words_of(std::string(rest.substr(1, 160)));
    if (names.size() < 2) continue;
    if (names[0] == "size" && names[1] == "count") return at;
    if (names[0] == "Size") return at;
  }
  return std::string_view::npos;
}

std::string utf8_from(std::string_view bytes, const char* encoding, std::size_t& bad) {
  std::string text;
  bad = std::string::npos;
  const auto converter = iconv_open("UTF-8", encoding);
  DYN_ASSERT(converter != iconv_t(-1), "the C library knows UTF-8 and UTF-16");
  // iconv() reads but does not write what it converts.
  char* from = const_cast<char*>(bytes.data());
  std::size_t left = bytes.size();
  std::string part(1 << 16, '\0');
  while (left > 0 && bad == std::string::npos) {
    char* to = part.data();
    std::size_t room = part.size();
    const auto before = left;
    iconv(converter, &from, &left, &to, &room);
    text.append(part.data(), part.size() - room);
    if (left > 0 && left == before && room == part.size()) bad = bytes.size() - left;
  }
  iconv_close(converter);
  if (const auto none = text.find('\0'); none != std::string::npos) {
    text.resize(none);
    bad = std::min(bad, bytes.find('\0'));
  }
  return text;
}

std::vector<std::string> lines_within(const std::string& line) {
  std::vector<std::string> lines;
  if (line.size() < 2 || line.find_first_of("\"'") == std::string::npos) return lines;
  // Ansible has the output a second time, by lines.
  if (const auto again = line.find("\"stdout_lines\"");
      again != std::string::npos && line.rfind("\"stdout\"", again) != std::string::npos) {
    const auto rest = std::min(line.find("\"]", again), line.size());
    return lines_within(line.substr(0, again) + line.substr(rest));
  }
  std::size_t headings = 0;
  std::size_t comments = 0;
  for (const auto& text : quoted_texts(line)) {
    for (const auto& part : split(text, '\n')) {
      if (heading_place(part) != std::string::npos) ++headings;
      if (trim(part).starts_with('#')) ++comments;
      lines.push_back(part);
    }
  }
  // One comment is a quoted line: a table has more.
  if (headings == 0 || comments < 2) lines.clear();
  return lines;
}

void mend_rows(std::vector<std::string*>& lines) {
  std::set<std::string> hosts;
  for (const auto* line : lines) {
    const auto log = nccl_log_in(*line);
    if (log.begin != std::string::npos && trim(line->substr(0, log.begin)).empty())
      hosts.insert(log.word);
  }
  std::string* open = nullptr;  // the row that lacks its end
  for (auto* line : lines) {
    const auto log = nccl_log_in(*line);
    if (log.begin == std::string::npos) {
      if (open != nullptr) open->append(std::exchange(*line, ""));
      open = nullptr;
    } else if (auto before = row_before(*line, log, hosts)) {
      line->clear();
      if (open == nullptr) open = line;
      open->append(*before);
    }
  }
}

std::string without_quotes_behind(std::string line) {
  for (bool again = true; again && !line.empty();) {
    again = false;
    if (std::string_view("\"',;").find(line.back()) != std::string_view::npos) {
      line.pop_back();
      again = true;
    } else if (line.size() > 1 && line[line.size() - 2] == '\\' &&
               std::string_view("nrt").find(line.back()) != std::string_view::npos) {
      line.resize(line.size() - 2);
      again = true;
    }
  }
  return line;
}

std::string CellTable::read(const std::string& line) {
  for (const char sign : {'|', ';', ','}) {
    if (line.find(sign) == std::string::npos) continue;
    auto cells = cells_of(line, sign);
    auto first = lower_case(without_blanks(cells.front()));
    first.erase(0, std::min(first.find_first_not_of("#*`"), first.size()));
    if (cells.size() < 2 || (first != "size" && first != "size(b)" && first != "bytes")) continue;
    sign_ = sign;
    columns_ = cells.size();
    // nccl-tests has its units in a line of their own.
    if (cells[1].starts_with("count"))
      for (auto& cell : cells)
        for (const std::string_view unit : {"(B)", "(us)", "(GB/s)", "(elements)"})
          if (cell.ends_with(unit)) cell = trim(cell.substr(0, cell.size() - unit.size()));
    const char* begin = cells.front().starts_with('#') ? "" : first == "bytes" ? "#" : "# ";
    return begin + join(cells, "  ");
  }
  if (columns_ == 0 || line.find(sign_) == std::string::npos) return line;
  const auto cells = cells_of(line, sign_);
  if (cells.size() != columns_) return line;
  const auto made = join(cells, "  ");
  return made.find_first_not_of("-: ") == std::string::npos ? "" : made;
}

}  // namespace dynamiccl
