#include "plugin/agreement/call_table.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>

namespace dynamiccl {
namespace {

constexpr std::string_view kFirstLine = "dynamiccl-nccl-table 1";
constexpr std::string_view kFirstLineWithOrigin = "dynamiccl-nccl-table 2";
constexpr std::size_t kMostOriginText = 120;
constexpr std::size_t kMostCosts = kCallFunctions * kCallBins;
constexpr unsigned kMostChannels = 64;

std::uint64_t text_checksum(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

std::string hex(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  std::size_t at = 0;
  while ((at = line.find_first_not_of(" \t\r", at)) != std::string_view::npos) {
    const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

/// "-" is 0.
std::optional<unsigned> number(std::string_view word, unsigned most) {
  unsigned value = 0;
  if (word == "-") return 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || value > most) return std::nullopt;
  return value;
}

template <std::size_t n>
std::optional<std::size_t> index_of(const std::array<std::string_view, n>& names,
                                    std::string_view word) {
  const auto found = std::find(names.begin(), names.end(), word);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

template <std::size_t n>
std::optional<std::uint8_t> choice(const std::array<std::string_view, n>& names,
                                   std::string_view word) {
  if (word == "-") return CallCell::kAny;
  const auto index = index_of(names, word);
  if (!index) return std::nullopt;
  return static_cast<std::uint8_t>(*index);
}

std::optional<CallRow> row_of(std::span<const std::string_view> words) {
  if (words.size() != 9 || words[0] != "row") return std::nullopt;
  const auto ranks = number(words[1], 1U << 24);
  const auto nodes = number(words[2], 1U << 24);
  const auto function = index_of(kCallFunctionNames, words[3]);
  const auto first = number(words[4], kCallBins - 1);
  const auto last = number(words[5], kCallBins - 1);
  const auto algorithm = choice(kCallAlgorithmNames, words[6]);
  const auto protocol = choice(kCallProtocolNames, words[7]);
  const auto channels = number(words[8], kMostChannels);
  if (!ranks || !nodes || !function || !first || !last || !algorithm || !protocol || !channels ||
      *first > *last)
    return std::nullopt;
  return CallRow{*ranks, *nodes, *function,
                 *first, *last,  {*algorithm, *protocol, static_cast<std::uint8_t>(*channels), 0}};
}

std::optional<float> microseconds(std::string_view word) {
  // strtof and from_chars of floats both fail somewhere: by locale, or in older libraries.
  std::uint64_t nanoseconds = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), nanoseconds);
  if (error != std::errc{} || end != word.data() + word.size() || nanoseconds == 0 ||
      static_cast<double>(nanoseconds) / 1e3 > double{kMostCostUs})
    return std::nullopt;
  return static_cast<float>(static_cast<double>(nanoseconds) / 1e3);
}

std::optional<CallCost> cost_of(std::span<const std::string_view> words) {
  if (words.size() != 7) return std::nullopt;
  const auto function = index_of(kCallFunctionNames, words[2]);
  const auto bin = number(words[3], kCallBins - 1);
  const auto algorithm = index_of(kCallAlgorithmNames, words[4]);
  const auto protocol = index_of(kCallProtocolNames, words[5]);
  const auto us = microseconds(words[6]);
  if (!function || !bin || !algorithm || !protocol || !us) return std::nullopt;
  return CallCost{*function, *bin, static_cast<std::uint8_t>(*algorithm),
                  static_cast<std::uint8_t>(*protocol), *us};
}

/// The words of a line after its first two, one space between them.
std::string rest_of(std::span<const std::string_view> words) {
  std::string text;
  for (const std::string_view word : words.subspan(2))
    text += (text.empty() ? "" : " ") + std::string(word);
  return text;
}

/// @returns false for a line that says nothing of an origin
bool take_origin(std::span<const std::string_view> words, CallTableOrigin& origin) {
  if (words.size() < 3 || words[0] != "made") return false;
  if (words[1] == "cost") {
    const auto cost = cost_of(words);
    if (!cost || origin.costs.size() >= kMostCosts) return false;
    origin.costs.push_back(*cost);
    return true;
  }
  const std::string text = rest_of(words);
  if (text.size() > kMostOriginText || (words[1] != "nccl" && words[1] != "gpu")) return false;
  (words[1] == "nccl" ? origin.nccl : origin.gpu) = text;
  return true;
}

/// What may stand in a line: names come from drivers and libraries.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text.substr(0, kMostOriginText)) line += c >= ' ' && c <= '~' ? c : '?';
  return line;
}

std::string origin_text(const CallTableOrigin& origin) {
  std::string text;
  if (!origin.nccl.empty()) text += "made nccl " + one_line(origin.nccl) + "\n";
  if (!origin.gpu.empty()) text += "made gpu " + one_line(origin.gpu) + "\n";
  if (!origin.costs.empty())
    text += "# made cost FUNCTION LOG2 ALGORITHM PROTOCOL NANOSECONDS, as NCCL expected them\n";
  for (const CallCost& cost : origin.costs) {
    // Without the mathematics library, which the plugin does not need.
    const auto ns = static_cast<std::uint64_t>(std::max(1.0, double{cost.us} * 1e3 + 0.5));
    text += "made cost " + std::string(kCallFunctionNames.at(cost.function)) + " " +
            std::to_string(cost.bin) + " " + std::string(kCallAlgorithmNames.at(cost.algorithm)) +
            " " + std::string(kCallProtocolNames.at(cost.protocol)) + " " + std::to_string(ns) +
            "\n";
  }
  return text;
}

std::string_view choice_name(std::span<const std::string_view> names, std::uint8_t value) {
  return value < names.size() ? names[value] : "-";
}

std::string number_text(unsigned value) { return value == 0 ? "-" : std::to_string(value); }

}  // namespace

std::uint64_t checksum_of(const CallTable& table) {
  static_assert(sizeof(CallTable) % (4 * sizeof(std::uint64_t)) == 0);
  // Four lanes: a rank takes over a table in the middle of its job.
  std::array<std::uint64_t, 4> lanes{1, 2, 3, 5};
  std::array<std::uint64_t, 4> part{};
  const auto* bytes = reinterpret_cast<const char*>(&table);
  for (std::size_t at = 0; at < sizeof(CallTable); at += sizeof(part)) {
    std::memcpy(part.data(), bytes + at, sizeof(part));
    for (std::size_t i = 0; i < lanes.size(); ++i)
      lanes[i] = (lanes[i] ^ part[i]) * 0x9e3779b97f4a7c15ULL + (lanes[i] >> 29);
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : lanes) sum = (sum ^ lane ^ (lane >> 32)) * 0xff51afd7ed558ccdULL;
  return sum | 1;
}

bool is_sound(const CallTable& table) {
  for (const auto& function : table.cells)
    for (const CallCell& cell : function)
      if ((cell.algorithm >= kCallAlgorithmNames.size() && cell.algorithm != CallCell::kAny) ||
          (cell.protocol >= kCallProtocolNames.size() && cell.protocol != CallCell::kAny) ||
          cell.channels > kMostChannels)
        return false;
  return true;
}

CallTable table_for(const std::vector<CallRow>& rows, unsigned ranks, unsigned nodes) {
  CallTable table;
  // From the least to the most specific, so that the last one stays.
  for (int wanted = 0; wanted <= 2; ++wanted) {
    for (const CallRow& row : rows) {
      const int specific = (row.ranks != 0 ? 1 : 0) + (row.nodes != 0 ? 1 : 0);
      const bool matches =
          (row.ranks == 0 || row.ranks == ranks) && (row.nodes == 0 || row.nodes == nodes);
      if (specific != wanted || !matches || row.function >= kCallFunctions) continue;
      for (std::size_t bin = row.first_bin; bin <= row.last_bin && bin < kCallBins; ++bin)
        table.cells[row.function][bin] = row.cell;
    }
  }
  return table;
}

std::vector<CallRow> call_rows(const CallTable& table, unsigned ranks, unsigned nodes) {
  std::vector<CallRow> rows;
  for (std::size_t function = 0; function < kCallFunctions; ++function)
    for (std::size_t bin = 0; bin < kCallBins; ++bin) {
      const CallCell cell = table.cells[function][bin];
      if (cell.leaves_all()) continue;
      if (!rows.empty() && rows.back().function == function && rows.back().last_bin + 1 == bin &&
          rows.back().cell == cell)
        rows.back().last_bin = bin;
      else
        rows.push_back({ranks, nodes, function, bin, bin, cell});
    }
  return rows;
}

std::string to_text(const std::vector<CallRow>& rows, const CallTableOrigin& origin) {
  const std::string made = origin_text(origin);
  std::string text(made.empty() ? kFirstLine : kFirstLineWithOrigin);
  text += "\n" + made;
  text += "# row RANKS NODES FUNCTION FIRST_LOG2 LAST_LOG2 ALGORITHM PROTOCOL CHANNELS (- = any)\n";
  for (const CallRow& row : rows) {
    text += "row " + number_text(row.ranks) + " " + number_text(row.nodes) + " ";
    text += std::string(kCallFunctionNames.at(row.function)) + " " + std::to_string(row.first_bin) +
            " " + std::to_string(row.last_bin) + " ";
    text += std::string(choice_name(kCallAlgorithmNames, row.cell.algorithm)) + " " +
            std::string(choice_name(kCallProtocolNames, row.cell.protocol)) + " " +
            number_text(row.cell.channels) + "\n";
  }
  return text + "checksum " + hex(text_checksum(text)) + "\n";
}

CallTableFile call_table_from_text(std::string_view text, std::string& problem) {
  problem.clear();
  CallTableFile file;
  bool begun = false;
  bool has_origin = false;
  std::size_t line_number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    const auto words = words_of(line);
    ++line_number;
    if (!words.empty() && !words[0].starts_with("#")) {
      if (begun && words[0] == "checksum") {
        if (words.size() == 2 && words[1] == hex(text_checksum(text.substr(0, at)))) return file;
        problem = "its checksum does not fit: it is damaged or was edited";
        return {};
      }
      if (!begun) {
        has_origin = line == kFirstLineWithOrigin;
        if (!has_origin && line != kFirstLine) {
          problem = "its first line is neither \"" + std::string(kFirstLine) + "\" nor \"" +
                    std::string(kFirstLineWithOrigin) + "\"";
          return {};
        }
        begun = true;
      } else if (const auto row = row_of(words)) {
        file.rows.push_back(*row);
      } else if (!has_origin || !take_origin(words, file.origin)) {
        problem = "line " + std::to_string(line_number) + " is no row";
        return {};
      }
    }
    at = end + 1;
  }
  problem = "it ends before its checksum: it was not written to the end";
  return {};
}

}  // namespace dynamiccl
