// `dynamiccl tune -- COMMAND` with jobs of Open MPI and MPICH, started by their own launchers.
#include <elf.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/e2e/program.hpp"
#include "tuner/table/table.hpp"

using namespace dynamiccl;
namespace fs = std::filesystem;

namespace {

struct Mpi {
  Backend library;
  std::string title;
  std::string job;
  std::vector<std::string> launcher;
};

/// Those whose jobs this build has.
std::vector<Mpi> known_mpis() {
  std::vector<Mpi> all{{Backend::openmpi,
                        "Open MPI",
                        DYNAMICCL_BINARY_DIR "/tests/mpi-job-openmpi",
                        {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"}},
                       {Backend::mpich,
                        "MPICH",
                        DYNAMICCL_BINARY_DIR "/tests/mpi-job-mpich",
                        {"mpirun.mpich", "-n", "2"}}};
  std::erase_if(all, [](const Mpi& mpi) { return !fs::exists(mpi.job); });
  return all;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("a job of MPI is recognised, watched and tuned, and what is found is a file of variables",
          "[C-39][E-102][E-105]") {
  const auto mpis = known_mpis();
  if (mpis.empty()) SKIP("no MPI was found where this was built");
  for (const Mpi& mpi : mpis) {
    const Program program;
    const std::string out = program.folder() + "/tuned";
    std::vector<std::string> words{
        "tune",    "--json", "--out",          out, "--launches",      "3",   "--pairs", "3",
        "--steps", "4",      "--warmup-steps", "1", "--trial-seconds", "120", "--"};
    words.insert(words.end(), mpi.launcher.begin(), mpi.launcher.end());
    words.push_back(mpi.job);
    const auto tuned = program.run(words);
    INFO(tuned.err << tuned.out);
    REQUIRE(tuned.exit_code == 0);
    CHECK(says(tuned.err, "its ranks have " + mpi.title + " loaded"));
    CHECK(says(tuned.err, "most bytes: allreduce of 4 MiB"));
    const auto told = nlohmann::json::parse(tuned.out);
    CHECK(told.at("library") == name_of(mpi.library));
    CHECK(told.at("calls_per_step") == 2);
    CHECK(told.at("judged_by") == "step");
    // The doctor's line comes first.
    CHECK(says(tuned.err, "keep=true"));
    CHECK(program
              .value("SELECT count(*) FROM decision WHERE task_key LIKE '" +
                     std::string(name_of(mpi.library)) + "/job/step/r2%'")
              .get<int>() > 2);
    CHECK(program.processes().empty());
    const std::string file = out + "/" + std::string(name_of(mpi.library)) + ".env";
    CHECK(fs::exists(file) == told.at("kept").get<bool>());
    // A busy machine may leave it open; where it is kept, the file is what the job loads.
    if (!told.at("kept").get<bool>()) continue;
    CHECK(read_table(out + "/table.json").entries.front().evidence.verdict == "FASTER");
    CHECK(says(told.at("use").get<std::string>(), file));
    const std::string variables = text_of(file);
    CHECK((says(variables, "GLIBC_TUNABLES=") || says(variables, "OMPI_MCA_") ||
           says(variables, "MPIR_CVAR_") || says(variables, "UCX_")));
    const auto exported = program.run({"export", out + "/table.json", "--format",
                                       std::string(name_of(mpi.library)), "--out", out + "/again"});
    CHECK(exported.exit_code == 0);
    CHECK(fs::exists(out + "/again/" + std::string(name_of(mpi.library)) + ".env"));
  }
}

TEST_CASE("a command without steps is judged by its whole time", "[E-105]") {
  const auto mpis = known_mpis();
  if (mpis.empty()) SKIP("no MPI was found where this was built");
  const Mpi& mpi = mpis.front();
  const Program program;
  std::vector<std::string> words{
      "tune",       "--json", "--whole", "--out", program.folder() + "/t",
      "--launches", "2",      "--pairs", "3",     "--"};
  words.insert(words.end(), mpi.launcher.begin(), mpi.launcher.end());
  words.insert(words.end(), {mpi.job, "3", "1024"});
  const auto tuned = program.run(words);
  INFO(tuned.err << tuned.out);
  REQUIRE(tuned.exit_code == 0);
  CHECK(nlohmann::json::parse(tuned.out).at("judged_by") == "whole command");
  CHECK(says(tuned.err, " in all: ok"));
}

TEST_CASE("what no library can be preloaded into is refused before it is started") {
  const Program program;
  const std::string job = program.folder() + "/static-job";
  Elf64_Ehdr head{};
  std::copy_n(ELFMAG, SELFMAG, head.e_ident);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  std::ofstream(job, std::ios::binary).write(reinterpret_cast<const char*>(&head), sizeof(head));
  fs::permissions(job, fs::perms::owner_all);
  const auto refused =
      program.run({"tune", "--out", program.folder() + "/t", "--", "mpirun", "-n", "2", job});
  CHECK(refused.exit_code == 2);
  CHECK(says(refused.err, job + " is linked statically"));
  CHECK_FALSE(says(refused.err, "will be started"));
}

TEST_CASE("ranks that have MPI loaded and tell nothing are said to, with what they need",
          "[E-105]") {
  const Program program;
  for (const char* library : {"/usr/lib/x86_64-linux-gnu/libmpich.so.12"}) {
    if (!fs::exists(library)) SKIP("no MPICH lies where this looks");
    const auto tuned =
        program.run({"tune", "--out", program.folder() + "/t", "--trial-seconds", "20", "--", "env",
                     std::string("LD_PRELOAD=") + library, "sleep", "100"});
    CHECK(tuned.exit_code == 2);
    CHECK(says(tuned.err, "have MPICH loaded, but none recorded what it calls"));
    CHECK(says(tuned.err, "libdynamiccl-mpi-watch.so"));
  }
}
