#include "orchestrator/import/nccl_row.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <limits>

#include "orchestrator/import/foreign_table.hpp"

namespace dynamiccl {
namespace {

bool is_time(const std::string& column) { return column == "time" || column == "cputime"; }

/// A word and the place behind its last letter.
struct Word {
  std::string text;
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::vector<Word> placed_words(const std::string& line) {
  std::vector<Word> words;
  for (std::size_t at = 0; at < line.size();) {
    const auto begin = line.find_first_not_of(" \t", at);
    if (begin == std::string::npos) break;
    const auto end = std::min(line.find_first_of(" \t", begin), line.size());
    words.push_back({line.substr(begin, end - begin), begin, end});
    at = end;
  }
  return words;
}

bool can_hold(const std::string& column, const std::string& word) {
  const bool number = number_of(word).has_value();
  if (column == "type" || column == "redop") return !number;
  if (is_time(column) || column == "algbw" || column == "busbw" || column == "#wrong" ||
      column == "error")
    return number || word == "N/A";
  if (column == "size" || column == "count" || column == "root") return number;
  return true;
}

/// Single blanks between all words: their places say nothing.
bool is_collapsed(const std::vector<Word>& words) {
  for (std::size_t i = 1; i < words.size(); ++i)
    if (words[i].begin - words[i - 1].end > 1) return false;
  return true;
}

/// Further from its column's end, a word's place does not tell the column.
constexpr double kFarthest = 2;

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Words to columns in order, so that their ends lie as near to each other as can be.
std::vector<std::optional<std::string>> by_place(const std::vector<Word>& words,
                                                 const std::vector<std::string>& columns,
                                                 const std::vector<std::size_t>& ends) {
  const std::size_t n = words.size();
  const std::size_t m = columns.size();
  // cost[i][j]: the first i words among the first j columns.
  std::vector<std::vector<double>> cost(n + 1, std::vector<double>(m + 1, kNever));
  for (std::size_t j = 0; j <= m; ++j) cost[0][j] = 0;
  const auto here = [&](std::size_t i, std::size_t j) {
    if (!can_hold(columns[j - 1], words[i - 1].text)) return kNever;
    const double distance =
        std::abs(static_cast<double>(words[i - 1].end) - static_cast<double>(ends[j - 1]));
    return distance <= kFarthest ? distance : kNever;
  };
  for (std::size_t i = 1; i <= n; ++i) {
    for (std::size_t j = i; j <= m; ++j)
      cost[i][j] = std::min(cost[i][j - 1], cost[i - 1][j - 1] + here(i, j));
  }
  if (cost[n][m] == kNever) return {};
  std::vector<std::optional<std::string>> values(m);
  for (std::size_t i = n, j = m; i > 0; --j) {
    if (cost[i][j - 1] == cost[i][j]) continue;
    values[j - 1] = words[--i].text;
  }
  return values;
}

}  // namespace

NcclHeading::NcclHeading(const std::string& line, std::size_t indent) {
  for (auto& word : placed_words(line)) {
    if (word.text == "#") continue;
    if (columns_.empty() && word.text.starts_with('#')) word.text.erase(0, 1);
    columns_.push_back(word.text);
    ends_.push_back(indent + word.end);
  }
}

bool NcclHeading::is_heading(const std::string& line) {
  if (!line.starts_with('#')) return false;
  const auto words = words_of(line.substr(1));
  return words.size() > 5 && words[0] == "size" && words[1] == "count" &&
         std::any_of(words.begin(), words.end(), is_time);
}

std::vector<std::size_t> NcclHeading::times() const {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < columns_.size(); ++i)
    if (is_time(columns_[i])) places.push_back(i);
  return places;
}

std::optional<std::size_t> NcclHeading::place(const std::string& name, std::size_t from) const {
  for (std::size_t i = from; i < columns_.size(); ++i)
    if (columns_[i] == name) return i;
  return std::nullopt;
}

std::vector<std::optional<std::string>> NcclHeading::values(const std::string& line) const {
  auto words = placed_words(line);
  // A time stamp is one column of two words.
  if (columns_.back() == "timestamp" && words.size() > 1 && !number_of(words.back().text) &&
      !number_of(words[words.size() - 2].text)) {
    auto& stamp = words[words.size() - 2];
    stamp = {stamp.text + " " + words.back().text, stamp.begin, words.back().end};
    words.pop_back();
  }
  if (words.size() == columns_.size()) {
    std::vector<std::optional<std::string>> values;
    for (auto& word : words) values.emplace_back(std::move(word.text));
    return values;
  }
  if (words.size() > columns_.size() || is_collapsed(words)) return {};
  auto values = by_place(words, columns_, ends_);
  // A direction of buffers is there with all that belongs to its time, or not at all.
  for (const auto time : times()) {
    for (std::size_t i = time + 1; !values.empty() && i < time + 3 && i < columns_.size(); ++i)
      if ((columns_[i] == "algbw" || columns_[i] == "busbw") &&
          values[i].has_value() != values[time].has_value())
        return {};
  }
  return values;
}

bool NcclHeading::is_row(const std::string& line) const {
  const auto words = words_of(line);
  if (columns_.empty() || words.size() < 5) return false;
  if (number_of(words[0]) && number_of(words[1])) return true;
  const auto first = static_cast<unsigned char>(words[0].front());
  if (std::isdigit(first) == 0 && first != '-' && first != '+') return false;
  const std::size_t stamp = columns_.back() == "timestamp" ? 1 : 0;
  const auto time = times();
  return words.size() == columns_.size() + stamp && !time.empty() &&
         number_of(words[time.front()]).has_value();
}

}  // namespace dynamiccl
