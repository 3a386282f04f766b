#include "orchestrator/import/foreign_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>
#include <sstream>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/setting.hpp"
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
                              "cannot be told apart; correct the heading",
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

bool is_verdict_column(const std::string& title) {
  static const std::set<std::string> titles{"validation", "valid",  "check",   "status", "result",
                                            "verify",     "passed", "verdict", "correct"};
  return titles.contains(lower_case(title));
}

std::map<std::string, std::string> settings_in(const std::string& line) {
  static constexpr std::array<std::string_view, 9> kPrefixes{
      "NCCL_", "RCCL_", "OMPI_MCA_", "UCX_", "FI_", "MPICH_", "I_MPI_", "MV2_", "OMP_"};
  std::map<std::string, std::string> settings;
  const auto words = words_of(line);
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    if ((word == "--mca" || word == "-mca") && i + 2 < words.size())
      settings[setting_text(SettingScope::mca, words[i + 1])] = words[i + 2];
    if (word.starts_with("--export=")) word.erase(0, 9);
    for (const auto& part : split(word, ',')) {
      const auto equals = part.find('=');
      if (equals == std::string::npos) continue;
      if (std::any_of(kPrefixes.begin(), kPrefixes.end(),
                      [&](std::string_view prefix) { return part.starts_with(prefix); }))
        settings[setting_text(SettingScope::env, part.substr(0, equals))] = part.substr(equals + 1);
    }
  }
  return settings;
}

namespace {

/// More than any job has.
constexpr double kMostProcesses = 1e7;

std::optional<int> process_count(const std::string& word) {
  const auto value = number_of(word);
  if (!value || *value < 1 || *value > kMostProcesses || *value != std::floor(*value))
    return std::nullopt;
  return static_cast<int>(*value);
}

/// The value of an option among words: "-np 2", "--ntasks=2", "-n2".
std::optional<int> option_in(const std::vector<std::string>& words,
                             std::initializer_list<std::string_view> names) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (const auto name : names) {
      if (words[i] == name && i + 1 < words.size()) {
        if (const auto value = process_count(words[i + 1])) return value;
      } else if (words[i].starts_with(std::string(name) + "=")) {
        if (const auto value = process_count(words[i].substr(name.size() + 1))) return value;
      } else if (name.size() == 2 && words[i].size() > 2 && words[i].starts_with(name)) {
        if (const auto value = process_count(words[i].substr(2))) return value;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<int> processes_in(const std::string& line) {
  static const std::set<std::string> launchers{"mpirun",  "mpiexec", "mpiexec.hydra", "mpirun_rsh",
                                               "orterun", "prun",    "prterun",       "srun",
                                               "ibrun",   "aprun",   "jsrun",         "flux"};
  const auto words = words_of(line);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto slash = words[i].rfind('/');
    const auto name = slash == std::string::npos ? words[i] : words[i].substr(slash + 1);
    if (!launchers.contains(name)) continue;
    const std::vector<std::string> rest(words.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                        words.end());
    if (const auto all = option_in(rest, {"-np", "--np", "--ntasks", "-n"})) return all;
    const auto nodes = option_in(rest, {"-N", "--nodes"});
    const auto each = option_in(rest, {"--ntasks-per-node", "-ppn", "--npernode"});
    if (nodes && each) return *nodes * *each;
    return std::nullopt;
  }
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const auto name = lower_case(words[i]);
    for (const std::string_view count : {"nprocs", "np", "ntasks", "#processes"}) {
      if (name != std::string(count) + ":" && name != std::string(count) + "=" &&
          !(name == count && (words[i + 1] == "=" || words[i + 1] == ":")))
        continue;
      auto value = words[name == count && i + 2 < words.size() ? i + 2 : i + 1];
      while (!value.empty() && std::isdigit(static_cast<unsigned char>(value.back())) == 0)
        value.pop_back();
      if (const auto found = process_count(value)) return found;
    }
  }
  return std::nullopt;
}

}  // namespace dynamiccl
