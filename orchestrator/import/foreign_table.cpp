#include "orchestrator/import/foreign_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>
#include <sstream>

#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

struct Alias {
  std::string_view theirs;
  std::string_view ours;
};

constexpr std::array kPrograms{
    Alias{"all_reduce", "allreduce"}, Alias{"all_gather", "allgather"},
    Alias{"alltoall", "alltoall"},    Alias{"broadcast", "broadcast"},
    Alias{"reduce", "reduce"},        Alias{"gather", "gather"},
    Alias{"sendrecv", "sendrecv"},    Alias{"reduce_scatter", "reduce_scatter"},
    Alias{"scatter", "scatter"},      Alias{"hypercube", "hypercube"}};

constexpr std::array kTypes{Alias{"float", "float32"},  Alias{"double", "float64"},
                            Alias{"half", "float16"},   Alias{"MPI_FLOAT", "float32"},
                            Alias{"MPI_BYTE", "uint8"}, Alias{"MPI_DOUBLE", "float64"},
                            Alias{"MPI_INT", "int32"},  Alias{"MPI_CHAR", "char"}};

template <std::size_t N>
std::string translated(const std::array<Alias, N>& table, const std::string& name) {
  for (const auto& alias : table) {
    if (alias.theirs == name) return std::string(alias.ours);
  }
  return name;
}

}  // namespace

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text;
}

std::string collective_of_program(const std::string& program) {
  std::string name = program;
  if (const auto slash = name.rfind('/'); slash != std::string::npos) name.erase(0, slash + 1);
  for (const char* suffix : {"_mpi", "_perf"}) {
    if (name.ends_with(suffix)) name.resize(name.size() - std::string_view(suffix).size());
  }
  return translated(kPrograms, name);
}

std::vector<std::string> operations_of_nccl_tests() {
  std::vector<std::string> names;
  for (const auto& program : kPrograms) names.emplace_back(program.theirs);
  return names;
}

std::string datatype_of(const std::string& name) { return translated(kTypes, name); }

ForeignRow nccl_tests_row(const NcclTestsCell& cell, std::size_t groups) {
  ForeignRow row;
  row.collective = cell.collective;
  row.size_bytes = cell.size_bytes;
  row.datatype = datatype_of(cell.type);
  row.in_place = cell.in_place;
  if (cell.redop != "" && cell.redop != "sum" && cell.redop != "none")
    row.knobs["redop"] = cell.redop;
  if (cell.root != "" && cell.root != "-1" && cell.root != "0") row.knobs["root"] = cell.root;
  if (groups > 1) row.knobs["groups"] = std::to_string(groups);
  row.reported = {{"size", cell.size_bytes}, {"count", cell.count}};
  for (const auto& [name, text] :
       {std::pair{"type", cell.type}, {"redop", cell.redop}, {"root", cell.root}})
    if (!text.empty()) row.reported[name] = text;
  row.reported["in_place"] = cell.in_place;
  return row;
}

std::string id_of_import(const std::string& text) {
  const std::string digest = sha256_hex(text);
  return fmt::format("{}-{}-{}-{}-{}", digest.substr(0, 8), digest.substr(8, 4),
                     digest.substr(12, 4), digest.substr(16, 4), digest.substr(20, 12));
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::optional<double> number_of(const std::string& word) {
  double value = 0;
  const auto parsed = std::from_chars(word.data(), word.data() + word.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size()) return std::nullopt;
  return value;
}

std::vector<ForeignStart> with_rows(std::vector<ForeignStart> starts, const std::string& path,
                                    std::string_view expected) {
  std::erase_if(starts, [](const ForeignStart& start) { return start.rows.empty(); });
  if (starts.empty())
    throw Error(ErrorKind::data, fmt::format("{}: holds no table of {}", path, expected));
  return starts;
}

std::string without_blanks(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  return text;
}

void require_distinct(const std::vector<std::string>& columns, const std::string& where) {
  std::set<std::string> seen;
  for (const auto& column : columns)
    if (!seen.insert(without_blanks(lower_case(column))).second)
      throw Error(ErrorKind::data,
                  fmt::format("{}: the heading names the column \"{}\" twice, so its figures "
                              "look the same; correct the heading",
                              where, column));
}

std::uint64_t count_of(const std::string& word, const std::string& where, std::string_view what,
                       std::uint64_t limit) {
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(word.data(), word.data() + word.size(), value);
  if (parsed.ec == std::errc() && parsed.ptr == word.data() + word.size() && value <= limit)
    return value;
  throw Error(
      ErrorKind::data,
      fmt::format("{}: the {} has to be a whole number of digits alone, 0 to {}; found "
                  "\"{}\". Correct or remove this entry, or import the program's own output",
                  where, what, limit, word));
}

double positive_of(const std::string& word, const std::string& where, std::string_view what) {
  const auto value = number_of(word);
  if (value && std::isfinite(*value) && *value > 0) return *value;
  throw Error(ErrorKind::data,
              fmt::format("{}: the {} has to be a finite number above 0; found \"{}\". Correct or "
                          "remove this entry, or import the program's own output",
                          where, what, word));
}

std::optional<std::uint64_t> wrong_of(const std::string& word, const std::string& where) {
  if (word == "N/A" || word == "null") return std::nullopt;
  const auto value = number_of(word);
  if (value && *value >= 0 && *value <= 1e18) return static_cast<std::uint64_t>(*value);
  throw Error(
      ErrorKind::data,
      fmt::format("{}: the count of wrong values has to be a number from 0 on, or N/A where "
                  "nothing was checked; found \"{}\". Correct or remove this entry, or "
                  "import the program's own output",
                  where, word));
}

double resolution_of(const std::string& word) {
  if (!number_of(word)) return 0;
  const auto exponent_at = word.find_first_of("eE");
  const std::string digits = word.substr(0, exponent_at);
  double unit = 1;
  if (const auto point = digits.find('.'); point != std::string::npos)
    unit = std::pow(10.0, -static_cast<double>(digits.size() - point - 1));
  if (exponent_at != std::string::npos) {
    if (const auto exponent = number_of(
            word.substr(word[exponent_at + 1] == '+' ? exponent_at + 2 : exponent_at + 1)))
      unit *= std::pow(10.0, *exponent);
  }
  return unit / 2;
}

std::optional<bool> verdict_of(const std::string& word) {
  static const std::set<std::string> good{"pass", "passed", "ok", "okay", "true", "success", "yes"};
  static const std::set<std::string> bad{"fail",  "failed", "failure", "ko",
                                         "false", "error",  "wrong",   "no"};
  const auto small = lower_case(word);
  if (good.contains(small)) return true;
  if (bad.contains(small)) return false;
  return std::nullopt;
}

bool says_failed(const std::string& word) { return lower_case(word).starts_with("fail"); }

bool is_verdict_column(const std::string& title) {
  static const std::set<std::string> titles{"validation", "valid",  "check",   "status", "result",
                                            "verify",     "passed", "verdict", "correct"};
  return titles.contains(lower_case(title));
}

}  // namespace dynamiccl
