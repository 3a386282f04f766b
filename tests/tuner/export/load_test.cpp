// Exported files, loaded by programs that know nothing of DynamICCL.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <tuple>

#include "containers/command.hpp"
#include "tuner/export/export.hpp"

using namespace dynamiccl;
namespace fs = std::filesystem;

namespace {

struct Folder {
  std::string path = fs::temp_directory_path() / "export-load-XXXXXX";
  Folder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  ~Folder() { fs::remove_all(path); }
};

ConfigurationTable table_of(Backend backend, const std::string& algorithm,
                            const std::map<std::string, std::string>& launch = {}) {
  ConfigurationTable table;
  table.put_regime({"r1", "bare-metal", {}});
  TableEntry entry;
  entry.key = {"r1", {Collective::allreduce, {20}, 2, 1, Architecture::ring, backend}};
  entry.setting.algorithm = algorithm;
  entry.setting.launch_knobs = launch;
  table.put(entry);
  if (backend == Backend::mpich && algorithm != "library") {
    entry.evidence.ratio = entry.evidence.ratio_low = entry.evidence.ratio_high = 0.5;
    table.checks.push_back(entry);
  }
  return table;
}

void write_files(const Export& made, const std::string& folder) {
  for (const ExportedFile& file : made.files) std::ofstream(folder + "/" + file.name) << file.text;
}

std::string shell(const std::string& command) {
  const auto result = run_command({"sh", "-c", command + " 2>&1"});
  return result.out + result.err;
}

/// Messages that rank 0 sent in one all-reduce of 1 MiB, as Open MPI's own monitoring counts them.
std::string messages_sent(const std::string& folder, const std::string& environment) {
  const std::string said =
      shell("export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; " + environment +
            " timeout 60 mpirun.openmpi --oversubscribe -n 2 --mca pml_monitoring_enable 1 "
            "--mca pml_monitoring_enable_output 3 --mca pml_monitoring_filename " +
            folder + "/sent " + std::string(DYNAMICCL_PLAIN_OPENMPI) +
            " 262144 coll_tuned_dynamic_rules_filename");
  const std::string counted = shell("grep -h '^E' " + folder +
                                    "/sent* | head -n 1 | cut -f 4,5; rm -f " + folder + "/sent*");
  return said + counted;
}

}  // namespace

TEST_CASE("Open MPI runs the algorithm that an exported rules file names", "[E-125][mpi]") {
  if (std::string(DYNAMICCL_PLAIN_OPENMPI).empty()) SKIP("built without Open MPI");
  if (shell("ompi_info").find("pml: monitoring") == std::string::npos)
    SKIP("this Open MPI has no monitoring component");
  const Folder folder;
  const Export made = export_table(table_of(Backend::openmpi, "recursive_doubling"),
                                   ExportFormat::openmpi, {.folder = folder.path});
  write_files(made, folder.path);
  // By itself it sends 1 MiB in two halves; recursive doubling sends it whole.
  CHECK(messages_sent(folder.path, "").find("1048576 bytes\t2 msgs") != std::string::npos);
  const std::string environment = made.use.at(0).substr(0, made.use.at(0).find("mpirun"));
  const std::string loaded = messages_sent(folder.path, environment);
  INFO(loaded);
  CHECK(loaded.find(folder.path + "/openmpi.rules") != std::string::npos);
  CHECK(loaded.find("1048576 bytes\t1 msgs") != std::string::npos);
}

TEST_CASE("MPICH has the algorithm that exported variables name", "[E-125][mpi]") {
  if (std::string(DYNAMICCL_PLAIN_MPICH).empty()) SKIP("built without MPICH");
  const Folder folder;
  const Export made = export_table(table_of(Backend::mpich, "recursive_doubling"),
                                   ExportFormat::mpich, {.folder = folder.path});
  write_files(made, folder.path);
  const std::string program = " timeout 60 mpirun.mpich -n 2 " +
                              std::string(DYNAMICCL_PLAIN_MPICH) +
                              " 1024 MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM";
  CHECK(shell(program).find("_ALGORITHM 0") != std::string::npos);
  CHECK(shell("set -a; . " + folder.path + "/mpich.env; set +a;" + program).find("_ALGORITHM 3") !=
        std::string::npos);
}

namespace {

/// Page faults that a call of 64 MiB costs the plain program's first rank.
double faults_per_call(const std::string& environment, const std::string& launcher,
                       const std::string& program) {
  const std::string said = shell(
      "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; unset GLIBC_TUNABLES; " +
      environment + " timeout 120 " + launcher + " -n 2 " + program + " 16777216 page_faults");
  INFO(said);
  const auto at = said.find("page_faults ");
  REQUIRE(at != std::string::npos);
  return std::stod(said.substr(at + 12));
}

}  // namespace

TEST_CASE("a plain MPI program that loads exported allocator settings keeps its memory", "[mpi]") {
  const std::map<std::string, std::string> keep{{"malloc.keep", "1"}};
  for (const auto& [backend, format, launcher, program] :
       {std::tuple{Backend::openmpi, ExportFormat::openmpi,
                   std::string("mpirun.openmpi --oversubscribe"),
                   std::string(DYNAMICCL_PLAIN_OPENMPI)},
        {Backend::mpich, ExportFormat::mpich, std::string("mpirun.mpich"),
         std::string(DYNAMICCL_PLAIN_MPICH)}}) {
    if (program.empty()) continue;
    const Folder folder;
    const Export made =
        export_table(table_of(backend, "library", keep), format, {.folder = folder.path});
    write_files(made, folder.path);
    const std::string load =
        "set -a; . " + folder.path + "/" + std::string(name_of(backend)) + ".env; set +a;";
    const double plain = faults_per_call("", launcher, program);
    const double loaded = faults_per_call(load, launcher, program);
    INFO(name_of(backend) << ": " << plain << " faults per call, loaded " << loaded);
    CHECK(plain > 4096);
    CHECK(loaded * 10 < plain);
  }
}
