// libFuzzer's entry for the target that FUZZ_TARGET names: scripts/fuzz.sh builds one program each.

#include <cstdint>
#include <cstdlib>

#include "tests/fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dynamiccl::fuzz;
  for (const auto& target : targets()) {
    if (target.name != FUZZ_TARGET) continue;
    try_input(target, std::string(reinterpret_cast<const char*>(data), size));
    return 0;
  }
  std::abort();  // no such target
}
