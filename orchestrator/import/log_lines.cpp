#include "orchestrator/import/log_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <set>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/import/foreign_table.hpp"
#include "orchestrator/import/log_parts.hpp"

namespace dynamiccl {
namespace {

/// No line of a table comes near it.
constexpr std::size_t kLongestLine = 16384;

bool is_digit(char letter) { return std::isdigit(static_cast<unsigned char>(letter)) != 0; }
bool is_blank(char letter) { return letter == ' ' || letter == '\t'; }

std::size_t line_of(std::string_view text, std::size_t place) {
  return 1 + static_cast<std::size_t>(
                 std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(place), '\n'));
}

/// Colours and cursor movements of terminals.
std::string without_escapes(std::string_view line) {
  std::string kept;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] != '\x1b') {
      const auto letter = static_cast<unsigned char>(line[at]);
      if (letter >= 0x20 || letter == '\t') kept += line[at];
      continue;
    }
    if (++at >= line.size()) break;
    if (line[at] == '[') {
      while (++at < line.size() && (line[at] < '@' || line[at] > '~')) {
      }
    } else if (line[at] == ']') {
      while (++at < line.size() && line[at] != '\x07' && line[at] != '\\') {
      }
    }
  }
  return kept;
}

/// "[1,0]<stdout>:" of Open MPI 4, "[prterun-host-1@1,0][node:99]<stdout>: " of 5: where the one
/// that begins at `at` ends; 0 where none does.
std::size_t end_of_tag(std::string_view line, std::size_t at) {
  const auto close = line.find_first_of("] \t", at);
  if (line[at] != '[' || close == std::string_view::npos || line[close] != ']') return 0;
  const auto inside = line.substr(at + 1, close - at - 1);
  const auto comma = inside.rfind(',');
  if (comma == std::string_view::npos || comma == 0 || comma + 1 == inside.size() ||
      !is_digit(inside[comma - 1]) ||
      !std::all_of(inside.begin() + static_cast<std::ptrdiff_t>(comma) + 1, inside.end(), is_digit))
    return 0;
  auto rest = close + 1;
  if (rest < line.size() && line[rest] == '[') {
    const auto second = line.find_first_of("] \t", rest);
    if (second == std::string_view::npos || line[second] != ']') return 0;
    rest = second + 1;
  }
  for (const std::string_view stream : {"<stdout>", "<stderr>", "<stddiag>"}) {
    if (!line.substr(rest).starts_with(stream)) continue;
    const auto end = rest + stream.size();
    return end < line.size() && line[end] == ':' ? end + 1 : end;
  }
  return 0;
}

/// A line without the tags of mpirun --tag-output, wherever they stand: a rank that flushes within
/// a line gets one there.
struct Tagged {
  std::string text;
  std::string tag;  ///< the first; "" = none
};

Tagged without_tags(const std::string& line) {
  Tagged result;
  for (std::size_t at = 0; at < line.size();) {
    const auto end = line[at] == '[' ? end_of_tag(line, at) : 0;
    if (end == 0) {
      result.text += line[at++];
      continue;
    }
    if (result.tag.empty()) result.tag = line.substr(at, end - at);
    at = end;
  }
  return result;
}

/// What a log collector that writes one JSON object per line has in it as the program's line.
std::string unwrapped(const std::string& line) {
  if (!line.starts_with("{\"")) return line;
  const auto object = json_or_discarded(line);
  if (!object.is_object()) return line;
  for (const char* key : {"log", "message", "msg", "line", "MESSAGE", "textPayload", "text"}) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_string()) continue;
    auto text = found->get<std::string>();
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    return text.find('\n') == std::string::npos ? unwrapped(without_escapes(text)) : line;
  }
  return line;
}

constexpr std::array<std::string_view, 19> kNamesOfDays{
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct",
    "Nov", "Dec", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};
constexpr std::array<std::string_view, 7> kLevels{"INFO",  "WARNING", "WARN",  "ERROR",
                                                  "DEBUG", "TRACE",   "NOTICE"};

enum class PieceKind { number, time, word, blank, letter };

/// A piece of what stands before a heading.
struct Piece {
  PieceKind kind;
  std::string text;
};

/// The piece that begins at `at`. A number with the separators of times and dates in it is a time.
Piece piece_at(std::string_view line, std::size_t at) {
  if (is_blank(line[at])) {
    auto end = at;
    while (end < line.size() && is_blank(line[end])) ++end;
    return {PieceKind::blank, std::string(line.substr(at, end - at))};
  }
  if (is_digit(line[at])) {
    auto end = at;
    bool time = false;
    while (end < line.size()) {
      if (is_digit(line[end])) {
        ++end;
      } else if (end + 1 < line.size() &&
                 std::string_view(":.-/T,+").find(line[end]) != std::string_view::npos &&
                 is_digit(line[end + 1])) {
        time = true;
        end += 2;
      } else {
        break;
      }
    }
    time = time || end - at >= 9;
    return {time ? PieceKind::time : PieceKind::number, std::string(line.substr(at, end - at))};
  }
  const bool begins_word = at == 0 || std::isalpha(static_cast<unsigned char>(line[at - 1])) == 0;
  const auto word_of = [&](const auto& names) -> std::optional<Piece> {
    for (const std::string_view name : names) {
      const auto end = at + name.size();
      if (begins_word && line.substr(at).starts_with(name) &&
          (end >= line.size() || std::isalpha(static_cast<unsigned char>(line[end])) == 0))
        return Piece{PieceKind::word, std::string(name)};
    }
    return std::nullopt;
  };
  if (auto day = word_of(kNamesOfDays)) return *day;
  if (auto level = word_of(kLevels)) return *level;
  return {PieceKind::letter, std::string(1, line[at])};
}

using Pieces = std::vector<Piece>;

Pieces pieces_of(std::string_view prefix) {
  Pieces pieces;
  for (std::size_t at = 0; at < prefix.size();) {
    pieces.push_back(piece_at(prefix, at));
    at += pieces.back().text.size();
  }
  return pieces;
}

/// Who wrote a line: what stands before it without times, dates and levels.
std::string source_in(const Pieces& pieces) {
  std::string source;
  for (const auto& piece : pieces)
    if (piece.kind == PieceKind::number || piece.kind == PieceKind::letter) source += piece.text;
  return source;
}

/// What stands before a heading, and what behind it.
struct Frame {
  Pieces pieces;
  std::string source;
  bool quoted = false;   ///< quotes and commas end its lines too
  bool counted = false;  ///< its number is no rank: it differs from line to line
};

/// Where a line's own text begins behind a frame; 0 where the frame does not fit.
std::size_t place_behind(const Frame& frame, std::string_view line, std::string& source) {
  std::size_t at = 0;
  Pieces found;
  for (std::size_t i = 0; i < frame.pieces.size(); ++i) {
    const auto& expected = frame.pieces[i];
    if (at >= line.size()) {
      if (expected.kind == PieceKind::blank) continue;
      return 0;
    }
    Piece piece = piece_at(line, at);
    if (piece.kind != expected.kind) {
      const bool numbers = expected.kind == PieceKind::time && piece.kind == PieceKind::number &&
                           piece.text.size() < 9 &&
                           i > 0;  // "10:00:00" as well as "10:00:00.5" is a time too
      if (!numbers)
        return expected.kind == PieceKind::blank && i + 1 == frame.pieces.size() ? at : 0;
    }
    if (piece.kind == PieceKind::letter && piece.text != expected.text) return 0;
    // Blanks behind the last piece are the line's own: columns are read by place.
    if (piece.kind == PieceKind::blank && i + 1 == frame.pieces.size() &&
        piece.text.size() > expected.text.size())
      piece.text.resize(expected.text.size());
    at += piece.text.size();
    found.push_back(std::move(piece));
  }
  source = source_in(found);
  return at;
}

struct TaggedLine {
  std::size_t number = 0;
  std::string text;
  std::string tag;
  std::string source;
};

std::vector<TaggedLine> tagged_lines(const std::string& text, const std::string& path) {
  std::vector<TaggedLine> lines;
  std::size_t number = 0;
  bool within = false;    // a document has been read
  bool by_lines = false;  // and stands here once more
  for (const auto& physical : split(text, '\n')) {
    ++number;
    by_lines = by_lines ? !trim(physical).starts_with(']')
                        : within && trim(physical).starts_with("\"stdout_lines\": [");
    if (by_lines) continue;
    auto parts = lines_within(physical);
    within = within || !parts.empty();
    if (parts.empty()) parts = split(physical, '\r');
    if (parts.size() == 1 && physical.size() > kLongestLine)
      throw Error(ErrorKind::data,
                  fmt::format("{}:{}: a line of {} characters is no line of a table; take it out, "
                              "or import the program's own output",
                              path, number, physical.size()));
    for (const auto& part : parts) {
      if (part.empty() && physical.size() > 1) continue;
      auto tagged = without_tags(unwrapped(without_escapes(part)));
      lines.push_back({number, std::move(tagged.text), std::move(tagged.tag), ""});
    }
  }
  return lines;
}

/// The frames of the headings; those of one number that counts on are made to fit all.
std::vector<Frame> frames_of(const std::vector<TaggedLine>& lines) {
  std::vector<Frame> frames;
  std::set<std::string> known;
  for (const auto& line : lines) {
    const auto place = heading_place(line.text);
    if (place == std::string::npos || trim(line.text.substr(0, place)).empty()) continue;
    if (known.size() > 64 || !known.insert(line.text.substr(0, place)).second) continue;
    Frame frame{pieces_of(line.text.substr(0, place)), "", false, false};
    // A bare number before a row is its size.
    if (std::all_of(frame.pieces.begin(), frame.pieces.end(), [](const Piece& piece) {
          return piece.kind == PieceKind::number || piece.kind == PieceKind::blank;
        }))
      continue;
    frame.source = source_in(frame.pieces);
    frame.quoted = without_quotes_behind(line.text) != line.text;
    frames.push_back(std::move(frame));
  }
  for (auto& frame : frames) {
    std::size_t same = 0;
    std::string source;
    for (const auto& line : lines)
      if (place_behind(frame, line.text, source) > 0 && source == frame.source) ++same;
    frame.counted = same < 2;
  }
  return frames;
}

void take_off(TaggedLine& line, const std::vector<Frame>& frames) {
  for (const auto& frame : frames) {
    std::string source;
    const auto place = place_behind(frame, line.text, source);
    if (place == 0 || (!frame.counted && source != frame.source)) continue;
    line.source = frame.counted ? "" : source;
    line.text.erase(0, place);
    if (frame.quoted) line.text = without_quotes_behind(std::move(line.text));
    // mpiexec -prepend-rank of MPICH puts the rank again where a line was flushed in its middle.
    const std::string label(trim(source));
    if (label.size() > 2 && label.front() == '[' && label.back() == ']' &&
        !trim(line.text).starts_with('#')) {
      for (auto at = line.text.find(label); at != std::string::npos; at = line.text.find(label, at))
        line.text.erase(at, label.size());
    }
    return;
  }
}

/// Two sources that print headings and write between each other's lines are two programs.
void refuse_mixed_sources(const std::vector<TaggedLine>& lines, const std::string& path) {
  struct Span {
    std::size_t first = 0;
    std::size_t last = 0;
    std::size_t heading = 0;  ///< line number
  };
  std::map<std::string, Span> spans;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto key = lines[i].tag + lines[i].source;
    if (key.empty()) continue;
    auto [found, is_new] = spans.try_emplace(key, Span{i, i, 0});
    found->second.last = i;
    if (heading_place(lines[i].text) != std::string::npos && found->second.heading == 0)
      found->second.heading = lines[i].number;
  }
  std::erase_if(spans, [](const auto& span) { return span.second.heading == 0; });
  for (auto one = spans.begin(); one != spans.end(); ++one) {
    for (auto other = std::next(one); other != spans.end(); ++other) {
      if (one->second.first > other->second.last || other->second.first > one->second.last)
        continue;
      throw Error(
          ErrorKind::data,
          fmt::format("{}: the job ran as {} separate programs that do not know each other: \"{}\" "
                      "and \"{}\" each print a heading (lines {} and {}) and write between each "
                      "other's lines. Start the ranks with a launcher that the program was built "
                      "for, or import each program's lines by themselves",
                      path, spans.size(), trim(one->first), trim(other->first), one->second.heading,
                      other->second.heading));
    }
  }
}

}  // namespace

std::string decoded_text(const std::string& bytes, const std::string& path) {
  for (const auto& [magic, program] :
       {std::pair<std::string_view, const char*>{"\x1F\x8B", "gunzip"},
        {"\xFD"
         "7zXZ",
         "unxz"},
        {"\x28\xB5\x2F\xFD", "unzstd"},
        {"BZh", "bunzip2"},
        {"PK\x03\x04", "unzip"}})
    if (bytes.starts_with(magic))
      throw Error(ErrorKind::data, fmt::format("{}: is compressed; unpack it first: {} {}", path,
                                               program, shell_quote(path)));
  const bool wide = bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF");
  const char* encoding = !wide ? "UTF-8" : bytes[0] == '\xFE' ? "UTF-16BE" : "UTF-16LE";
  const std::size_t mark = wide ? 2 : bytes.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  std::size_t bad = std::string::npos;
  std::string text = utf8_from(std::string_view(bytes).substr(mark), encoding, bad);
  if (bad != std::string::npos)
    throw Error(ErrorKind::data,
                fmt::format("{}:{}: holds a byte 0x{:02X} that is no UTF-8 text; convert the file "
                            "first, as by: iconv -f WINDOWS-1252 -t UTF-8",
                            path, line_of(text, text.size()),
                            static_cast<unsigned char>(bytes[mark + bad])));
  // Web pages have blanks that do not break.
  for (auto at = text.find("\xC2\xA0"); at != std::string::npos; at = text.find("\xC2\xA0", at))
    text.replace(at, 2, " ");
  return text;
}

std::vector<LogLine> log_lines(const std::string& text, const std::string& path) {
  auto lines = tagged_lines(text, path);
  const auto frames = frames_of(lines);
  for (auto& line : lines) take_off(line, frames);
  refuse_mixed_sources(lines, path);
  std::map<std::string, std::vector<std::string*>> by_tag;
  for (auto& line : lines) by_tag[line.tag].push_back(&line.text);
  for (auto& [tag, texts] : by_tag) mend_rows(texts);
  CellTable cells;
  std::vector<LogLine> cleaned;
  cleaned.reserve(lines.size());
  for (auto& line : lines) {
    line.text = cells.read(line.text);
    while (!line.text.empty() && is_blank(line.text.back())) line.text.pop_back();
    cleaned.push_back({line.number, std::move(line.text)});
  }
  return cleaned;
}

}  // namespace dynamiccl
