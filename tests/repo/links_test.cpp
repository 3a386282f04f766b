#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "containers/command.hpp"

using namespace dynamiccl;

namespace {

/// Libraries by which a program would belong to somebody else's world.
const std::vector<std::string> kMpi{"libmpi.so", "libmpich.so", "libopen-rte", "libopen-pal"};
const std::vector<std::string> kCollectives{"libgloo", "libnccl", "libcudart"};
const std::vector<std::string> kTorch{"libtorch", "libc10"};
const std::vector<std::string> kDatabase{"libsqlite3", "libSQLiteCpp"};

std::string linked(const std::string& program) {
  const auto result = run_command({"ldd", program});
  return result.out + result.err;
}

void check_links_none(const std::string& name, const std::vector<std::vector<std::string>>& kinds) {
  const std::string program = std::string(DYNAMICCL_BINARY_DIR) + "/" + name;
  if (!std::filesystem::exists(program)) return;
  const std::string libraries = linked(program);
  INFO(name << " links\n" << libraries);
  for (const auto& kind : kinds) {
    for (const auto& library : kind) CHECK(libraries.find(library) == std::string::npos);
  }
}

}  // namespace

TEST_CASE("the orchestrator links no MPI, no collective library and no torch") {
  REQUIRE(std::filesystem::exists(DYNAMICCL_BINARY_DIR "/dynamiccl"));
  check_links_none("dynamiccl", {kMpi, kCollectives, kTorch});
}

TEST_CASE("workers know no database, and each one MPI at most") {
  check_links_none("dynamiccl-worker-openmpi", {kDatabase, kTorch, {"libmpich.so"}});
  check_links_none("dynamiccl-worker-mpich", {kDatabase, kTorch, {"libmpi.so", "libopen-rte"}});
  check_links_none("dynamiccl-worker", {kDatabase, kTorch, kMpi});
}

TEST_CASE("the probe is static, so that it runs in any container") {
  const std::string probe = DYNAMICCL_BINARY_DIR "/dynamiccl-probe";
  if (!std::filesystem::exists(probe)) SKIP("built without dynamiccl-probe (sanitizers)");
  const auto text = linked(probe);
  CHECK((text.find("not a dynamic executable") != std::string::npos ||
         text.find("statically linked") != std::string::npos));
}
