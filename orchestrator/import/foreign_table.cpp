#include "orchestrator/import/foreign_table.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <regex>
#include <sstream>

#include "core/error.hpp"
#include "core/text.hpp"

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
    Alias{"sendrecv", "sendrecv"},    Alias{"reduce_scatter", "reduce_scatter"}};

constexpr std::array kTypes{Alias{"float", "float32"},      Alias{"double", "float64"},
                            Alias{"half", "float16"},       Alias{"MPI_FLOAT", "float32"},
                            Alias{"MPI_DOUBLE", "float64"}, Alias{"MPI_INT", "int32"},
                            Alias{"MPI_CHAR", "char"}};

template <std::size_t N>
std::string translated(const std::array<Alias, N>& table, const std::string& name) {
  for (const auto& alias : table) {
    if (alias.theirs == name) return std::string(alias.ours);
  }
  return name;
}

}  // namespace

std::string collective_of_program(const std::string& program) {
  std::string name = program;
  if (const auto slash = name.rfind('/'); slash != std::string::npos) name.erase(0, slash + 1);
  for (const char* suffix : {"_mpi", "_perf"}) {
    if (name.ends_with(suffix)) name.resize(name.size() - std::string_view(suffix).size());
  }
  return translated(kPrograms, name);
}

std::string datatype_of(const std::string& name) { return translated(kTypes, name); }

std::vector<std::string> clean_lines(const std::string& text) {
  static const std::regex tag(R"(^\[\d+,\d+\]<std(out|err)>:)");
  std::vector<std::string> lines;
  for (const auto& line : split(text, '\n')) {
    const auto trimmed = std::string(trim(line));
    lines.push_back(trimmed.starts_with('[')
                        ? std::string(trim(std::regex_replace(trimmed, tag, "")))
                        : trimmed);
  }
  return lines;
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

}  // namespace dynamiccl
