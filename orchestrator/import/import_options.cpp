#include "orchestrator/import/import_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/simulated.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// What a library's tables come from: programs that call MPI, or programs that call NCCL.
enum class Interface { mpi, nccl };

struct Library {
  std::string_view name;
  Interface interface;
};

/// More than are started here: tables come from other machines.
constexpr std::array kLibraries{
    Library{"nccl", Interface::nccl},          Library{"rccl", Interface::nccl},
    Library{"openmpi", Interface::mpi},        Library{"mpich", Interface::mpi},
    Library{"cuda-aware-mpi", Interface::mpi}, Library{"mpi", Interface::mpi},
    Library{"mvapich2", Interface::mpi},       Library{"intel-mpi", Interface::mpi},
    Library{"cray-mpich", Interface::mpi}};

constexpr std::string_view kAlone = "leave it out, or import this file by itself";

std::vector<std::string> libraries_of(std::optional<Interface> interface) {
  std::vector<std::string> names;
  for (const auto& library : kLibraries) {
    if (!interface || library.interface == *interface) names.emplace_back(library.name);
  }
  return names;
}

bool holds(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

[[noreturn]] void refuse_unknown(std::string_view what, const std::string& word,
                                 const std::vector<std::string>& known) {
  throw Error(ErrorKind::input, fmt::format("import: unknown {} \"{}\"; {}", what, word,
                                            suggestion(lower_case(word), known)));
}

bool is_known_operation(const std::string& collective) {
  const auto programs = operations_of_nccl_tests();
  return std::any_of(programs.begin(), programs.end(), [&](const std::string& program) {
    return collective_of_program(program) == collective;
  });
}

/// The library that OSU names in its title: "OSU NCCL Allreduce Latency Test".
std::string library_in_title(const ForeignStart& start) {
  const auto found = start.source.find("library");
  return found != start.source.end() && found->is_string() ? lower_case(found->get<std::string>())
                                                           : "";
}

}  // namespace

void check_import_options(const ImportOptions& options) {
  if (trim(options.environment).empty())
    throw Error(ErrorKind::input,
                "import: --environment is empty; say where it was measured, as in --environment "
                "bare-metal, or leave it out (unknown)");
  if (is_simulated(trim(options.environment)))
    throw Error(ErrorKind::input,
                fmt::format("import: --environment {}: names that begin with \"{}\" are of ranks "
                            "that SimGrid simulates, and a table is of ranks that ran; "
                            "give another name",
                            options.environment, kSimulatedPrefix));
  if (const auto known = libraries_of({});
      !options.backend.empty() && !holds(known, options.backend))
    refuse_unknown("backend", options.backend, known);
  if (!options.operation.empty() && !is_known_operation(collective_of_program(options.operation)))
    refuse_unknown("operation", options.operation, operations_of_nccl_tests());
}

std::string settled_collective(const std::string& named, const std::string& where,
                               const ImportOptions& options) {
  const std::string collective = collective_of_program(named);
  if (options.operation.empty()) {
    if (!named.empty()) return collective;
    throw Error(ErrorKind::input, where +
                                      ": the table does not name its operation; give --operation, "
                                      "as in --operation all_reduce");
  }
  const std::string asked = collective_of_program(options.operation);
  // A renamed program says nothing of its operation.
  if (named.empty() || collective == asked || !is_known_operation(collective)) return asked;
  throw Error(ErrorKind::input,
              fmt::format("{}: --operation {} contradicts the table, which is of {}; {}", where,
                          options.operation, named, kAlone));
}

int settled_ranks(const ForeignStart& start, const std::string& path, const std::string& format,
                  const ImportOptions& options) {
  const int stated = start.ranks.value_or(0);
  const bool point_to_point = format == "osu" && start.ranks && !start.rows.empty() &&
                              start.rows[0].collective == "sendrecv";
  if (options.ranks == 0 || point_to_point) {
    if (stated > 0) return stated;
    throw Error(
        ErrorKind::input,
        fmt::format("{}: does not say with how many ranks it was measured; give --ranks N", path));
  }
  const bool fits = stated == 0 || (start.ranks_of_one_process ? options.ranks % stated == 0
                                                               : options.ranks == stated);
  if (fits) return options.ranks;
  throw Error(
      ErrorKind::input,
      fmt::format("{}: --ranks {} contradicts the file, which says {}{}; {}", path, options.ranks,
                  stated, start.ranks_of_one_process ? " per process" : "", kAlone));
}

std::string settled_backend(const ForeignStart& start, const std::string& path,
                            const std::string& format, const ImportOptions& options) {
  const std::string title = library_in_title(start);
  const bool calls_nccl = (format != "osu" && format != "imb") || title.starts_with("nccl") ||
                          title.starts_with("rccl");
  if (options.backend.empty())
    return !calls_nccl                                                   ? "mpi"
           : title.starts_with("rccl") || start.source.contains("suite") ? "rccl"
                                                                         : "nccl";
  const auto possible = libraries_of(calls_nccl ? Interface::nccl : Interface::mpi);
  if (holds(possible, options.backend)) return options.backend;
  throw Error(
      ErrorKind::input,
      fmt::format("{}: --backend {} contradicts the file, whose program calls {}: {}; {}", path,
                  options.backend, calls_nccl ? "NCCL" : "MPI", join(possible, ", "), kAlone));
}

}  // namespace dynamiccl
