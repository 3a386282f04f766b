#include "core/vocabulary/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <utility>

namespace dynamiccl {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows of the table for the last two letters of `a` and the present one.
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::size_t> row(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substitute});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = std::exchange(above, std::move(row));
  }
  return above[b.size()];
}

namespace {

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  std::transform(small.begin(), small.end(), small.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return small;
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  // Short names that other programs have for the same.
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kShort{
      {{"bf16", "bfloat16"},
       {"fp16", "float16"},
       {"half", "float16"},
       {"fp32", "float32"},
       {"fp64", "float64"},
       {"double", "float64"}}};
  for (const auto& [name, whole] : kShort)
    if (in_small_letters(word) == name && std::ranges::find(known, whole) != known.end())
      return std::string(whole);
  std::string best;
  // A third of the word (rounded) may be wrong; beyond that a guess misleads more than it helps.
  std::size_t limit = std::max<std::size_t>(1, (word.size() + 1) / 3) + 1;
  for (const auto& candidate : known) {
    // "TopK" is "top-k" with a letter missing.
    const std::size_t distance = edit_distance(in_small_letters(word), in_small_letters(candidate));
    if (distance < limit) {
      limit = distance;
      best = candidate;
    }
  }
  return best;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& known) {
  std::string text = fmt::format("known: {}", fmt::join(known, ", "));
  const std::string near = nearest_word(word, known);
  if (!near.empty()) text += fmt::format(". Did you mean \"{}\"?", near);
  return text;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  while (true) {
    const std::size_t end = text.find(separator, start);
    parts.emplace_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::string shell_quote(std::string_view argument) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_^";
  if (!argument.empty() && argument.find_first_not_of(plain) == std::string_view::npos) {
    return std::string(argument);
  }
  std::string quoted = "'";
  for (const char letter : argument) {
    if (letter == '\'') {
      quoted += "'\\''";
    } else {
      quoted += letter;
    }
  }
  return quoted + "'";
}

}  // namespace dynamiccl
