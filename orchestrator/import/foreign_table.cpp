#include "orchestrator/import/foreign_table.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <regex>
#include <sstream>

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

/// The rank that srun -l ("0:") and mpiexec -prepend-rank of MPICH ("[0]") put before every line,
/// up to the blank behind it; "" where there is none.
std::string label_of(const std::string& line) {
  static const std::regex label(R"((\d+:|\[\d+\])(?=\s|$))");
  std::smatch match;
  return std::regex_search(line, match, label, std::regex_constants::match_continuous)
             ? match[1].str()
             : std::string();
}

/// A number that begins a line may be data. It is a label when the same stands before a
/// heading: the rank that prints the heading prints the rows.
std::string label_of_heading(const std::vector<std::string>& lines) {
  for (const auto& line : lines) {
    const auto label = label_of(line);
    if (label.empty()) continue;
    const auto words = words_of(line.substr(label.size()));
    if (words.size() > 1 && words[0] == "#" && (words[1] == "size" || words[1] == "Size"))
      return label;
  }
  return "";
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

std::vector<std::string> operations_of_nccl_tests() {
  std::vector<std::string> names;
  for (const auto& program : kPrograms) names.emplace_back(program.theirs);
  return names;
}

std::string datatype_of(const std::string& name) { return translated(kTypes, name); }

std::vector<std::string> clean_lines(const std::string& text) {
  // "[1,0]<stdout>:", and "[prterun-host-1@1,0]<stdout>: " of Open MPI 5.
  static const std::regex tag(R"(\[[^\]\s]*\d+,\d+\](\[[^\]\s]*\])?<std(out|err)>:)");
  std::vector<std::string> lines;
  for (const auto& line : split(text, '\n')) {
    std::string cleaned(trim(line));
    if (std::smatch match;
        cleaned.starts_with('[') &&
        std::regex_search(cleaned, match, tag, std::regex_constants::match_continuous))
      cleaned = trim(match.suffix().str());
    lines.push_back(std::move(cleaned));
  }
  const std::string label = label_of_heading(lines);
  if (label.empty()) return lines;
  for (auto& line : lines)
    if (label_of(line) == label) line = trim(line.substr(label.size()));
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
