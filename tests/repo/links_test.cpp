#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "containers/command.hpp"
#include "core/vocabulary/text.hpp"

using namespace dynamiccl;

namespace {

/// Libraries by which a program would belong to somebody else's world.
const std::vector<std::string> kOpenMpi{"libmpi.so", "libopen-rte", "libopen-pal"};
const std::vector<std::string> kMpich{"libmpich.so"};
const std::vector<std::string> kMpi{"libmpi.so", "libmpich.so", "libopen-rte", "libopen-pal"};
const std::vector<std::string> kCollectives{"libgloo", "libnccl", "libcudart"};
const std::vector<std::string> kTorch{"libtorch", "libc10"};
const std::vector<std::string> kDatabase{"libsqlite3", "libSQLiteCpp"};

std::string linked(const std::string& program) {
  REQUIRE_FALSE(find_program("ldd").empty());
  const auto result = run_command({"ldd", program});
  REQUIRE((result.out + result.err).find("=>") != std::string::npos);
  return result.out + result.err;
}

/// What this build makes, by its file name; CMake tells, as not every library is everywhere.
bool is_built(const std::string& name) {
  const auto built = split(DYNAMICCL_BUILT_PROGRAMS, ' ');
  return std::find(built.begin(), built.end(), name) != built.end();
}

/// What the program itself asks for, without what its libraries bring along.
std::string needed(const std::string& program) {
  REQUIRE_FALSE(find_program("readelf").empty());
  const auto result = run_command({"readelf", "--dynamic", "--wide", program});
  REQUIRE(result.out.find("(NEEDED)") != std::string::npos);
  return result.out;
}

void check_links_none(const std::string& name, const std::vector<std::vector<std::string>>& kinds,
                      std::string (*libraries_of)(const std::string&) = linked) {
  if (!is_built(name)) return;
  const std::string program = std::string(DYNAMICCL_BINARY_DIR) + "/" + name;
  REQUIRE(std::filesystem::exists(program));
  const std::string libraries = libraries_of(program);
  INFO(name << " links\n" << libraries);
  for (const auto& kind : kinds) {
    for (const auto& library : kind) CHECK(libraries.find(library) == std::string::npos);
  }
}

}  // namespace

TEST_CASE("the orchestrator links no MPI, no collective library and no torch") {
  REQUIRE(is_built("dynamiccl"));
  check_links_none("dynamiccl", {kMpi, kCollectives, kTorch});
}

TEST_CASE("workers know no database, and each one MPI at most") {
  REQUIRE((is_built("dynamiccl-worker") || is_built("dynamiccl-worker-openmpi") ||
           is_built("dynamiccl-worker-mpich")));
  check_links_none("dynamiccl-worker-openmpi", {kDatabase, kTorch, kMpich});
  check_links_none("dynamiccl-worker-mpich", {kDatabase, kTorch, kOpenMpi});
  check_links_none("dynamiccl-worker", {kDatabase, kTorch, kMpi});
}

TEST_CASE("trainers alone carry torch, and otherwise what their worker does") {
  // libtorch itself brings a Gloo and an SQLite.
  check_links_none("dynamiccl-trainer-openmpi", {kDatabase, kMpich}, needed);
  check_links_none("dynamiccl-trainer-mpich", {kDatabase, kOpenMpi}, needed);
  check_links_none("dynamiccl-trainer", {kDatabase, kMpi}, needed);
  check_links_none("dynamiccl-learn", {kDatabase, kMpi, kCollectives}, needed);
}

TEST_CASE("the rule sees what a program links") {
  const std::string program = DYNAMICCL_BINARY_DIR "/dynamiccl";
  CHECK(linked(program).find("libsqlite3") != std::string::npos);
  CHECK(needed(program).find("libsqlite3") != std::string::npos);
}

TEST_CASE("what lives beside or inside somebody else's job carries nothing of ours") {
  REQUIRE(is_built("libdynamiccl-nccl-plugin.so"));
  REQUIRE(is_built("dynamiccl-leader"));
  check_links_none("libdynamiccl-nccl-plugin.so", {kDatabase, kTorch, kMpi, kCollectives});
  check_links_none("dynamiccl-leader", {kDatabase, kTorch, kMpi, kCollectives});
  check_links_none("dynamiccl-aggregator", {kDatabase, kTorch, kMpi, kCollectives});
}

TEST_CASE("the plugin needs the C library alone, as old as 2.34") {
  if (std::string(DYNAMICCL_SANITIZERS) != "") SKIP("sanitizers bring libraries of their own");
  REQUIRE(is_built("libdynamiccl-nccl-plugin.so"));
  const std::string plugin = DYNAMICCL_BINARY_DIR "/libdynamiccl-nccl-plugin.so";
  for (const auto& line : split(needed(plugin), '\n')) {
    if (line.find("(NEEDED)") == std::string::npos) continue;
    INFO(line);
    CHECK((line.find("[libc.so.6]") != std::string::npos ||
           line.find("[ld-linux") != std::string::npos));
  }
  const auto symbols = run_command({"readelf", "--version-info", "--wide", plugin}).out;
  REQUIRE(symbols.find("GLIBC_2.") != std::string::npos);
  constexpr int kNewest = 34;
  for (auto at = symbols.find("GLIBC_2."); at != std::string::npos;
       at = symbols.find("GLIBC_2.", at + 1)) {
    const std::string version = symbols.substr(at, 10);
    INFO(version);
    CHECK(std::atoi(symbols.c_str() + at + 8) <= kNewest);
  }
}

TEST_CASE("the probe is static, so that it runs in any container") {
  if (!is_built("dynamiccl-probe")) SKIP("built without dynamiccl-probe (sanitizers)");
  const std::string probe = DYNAMICCL_BINARY_DIR "/dynamiccl-probe";
  REQUIRE(std::filesystem::exists(probe));
  REQUIRE_FALSE(find_program("ldd").empty());
  const auto result = run_command({"ldd", probe});
  const auto text = result.out + result.err;
  CHECK((text.find("not a dynamic executable") != std::string::npos ||
         text.find("statically linked") != std::string::npos));
}
