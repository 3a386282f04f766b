// libFuzzer's entry. One program holds every target; DYNAMICCL_FUZZ_TARGET names the one that a
// process tries. Without a name it prints them.

#include <sqlite3.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/fuzz/seeds.hpp"
#include "tests/fuzz/targets.hpp"

namespace {

const dynamiccl::fuzz::Target* chosen = nullptr;

}  // namespace

/// Seeds that are no files go into the folder that DYNAMICCL_FUZZ_SEEDS names.
extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  using namespace dynamiccl::fuzz;
  // A lock at each allocation, for figures that nobody reads here.
  sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
  const char* named = std::getenv("DYNAMICCL_FUZZ_TARGET");
  for (const auto& target : targets()) {
    if (named == nullptr) std::printf("%s\n", std::string(target.name).c_str());
    if (named != nullptr && target.name == named) chosen = &target;
  }
  if (chosen == nullptr) {
    if (named != nullptr) std::fprintf(stderr, "fuzz_readers: no target %s\n", named);
    std::exit(named == nullptr ? 0 : 2);
  }
  const char* folder = std::getenv("DYNAMICCL_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  int number = 0;
  for (const auto& seed : made_seeds(chosen->name))
    std::ofstream(std::string(folder) + "/" + std::to_string(number++), std::ios::binary) << seed;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dynamiccl::fuzz::try_input(*chosen, std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
