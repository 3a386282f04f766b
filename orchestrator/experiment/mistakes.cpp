#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "core/vocabulary/text.hpp"
#include "orchestrator/experiment/toml_reader.hpp"

namespace dynamiccl {
namespace {

/// "12:5: ..." into line and column; leaves them where it begins otherwise.
void read_place(const std::string& text, std::size_t& line, std::size_t& column) {
  const char* end = text.data() + text.size();
  std::size_t first = 0;
  std::size_t second = 0;
  const auto before = std::from_chars(text.data(), end, first);
  if (before.ec != std::errc() || before.ptr == end || *before.ptr != ':') return;
  if (std::from_chars(before.ptr + 1, end, second).ec != std::errc()) return;
  line = first;
  column = second;
}

}  // namespace

void Mistakes::add(const toml::source_region& where, const std::string& message) {
  add_at(where, where.begin.column, message);
}

void Mistakes::add_inside(const toml::source_region& where, std::size_t offset,
                          const std::string& message) {
  add_at(where, where.begin.column + offset, message);
}

void Mistakes::add_at(const toml::source_region& where, std::size_t column,
                      const std::string& message) {
  const std::string& source = where.path ? *where.path : source_;
  if (where.begin.line == 0 || source.starts_with("--")) {
    mistakes_.push_back({kNowhere, 0, fmt::format("{}: {}", source, message)});
  } else {
    mistakes_.push_back({where.begin.line, column,
                         fmt::format("{}:{}:{}: {}", source, where.begin.line, column, message)});
  }
}

void Mistakes::add_placed(const std::string& message) {
  Mistake mistake;
  mistake.message = message;
  // SOURCE:LINE:COLUMN: as add_at writes it.
  if (message.starts_with(source_ + ":"))
    read_place(message.substr(source_.size() + 1), mistake.line, mistake.column);
  mistakes_.push_back(std::move(mistake));
}

void Mistakes::raise() const {
  if (mistakes_.empty()) return;
  auto sorted = mistakes_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Mistake& a, const Mistake& b) {
    return std::tie(a.line, a.column) < std::tie(b.line, b.column);
  });
  std::vector<std::string> lines;
  lines.reserve(sorted.size());
  for (auto& mistake : sorted) lines.push_back(std::move(mistake.message));
  throw Error(ErrorKind::input, join(lines, "\n"));
}

}  // namespace dynamiccl
