// libFuzzer's entry for the target that FUZZ_TARGET names: scripts/fuzz.sh builds one program each.

#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "tests/fuzz/seeds.hpp"
#include "tests/fuzz/targets.hpp"

/// Seeds that are no files go into the folder that the variable names.
extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  const char* folder = std::getenv("DYNAMICCL_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  int number = 0;
  for (const auto& seed : dynamiccl::fuzz::made_seeds(FUZZ_TARGET))
    std::ofstream(std::string(folder) + "/" + std::to_string(number++), std::ios::binary) << seed;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dynamiccl::fuzz;
  for (const auto& target : targets()) {
    if (target.name != FUZZ_TARGET) continue;
    try_input(target, std::string(reinterpret_cast<const char*>(data), size));
    return 0;
  }
  std::abort();  // no such target
}
