#include <dlfcn.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <string>

#include "core/vocabulary/error.hpp"
#include "workers/backends/nccl_library.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

std::string which(void* library) {
  const auto name = reinterpret_cast<const char* (*)()>(dlsym(library, "stand_in_name"));
  return name == nullptr ? "not a stand-in" : name();
}

}  // namespace

TEST_CASE("a process has one NCCL: the one that it has already", "[C-05]") {
  if (void* there = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD); there != nullptr)
    SKIP("this program has an NCCL already");
  setenv("DYNAMICCL_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  CHECK_THROWS_MATCHES(open_nccl_library(), Error,
                       MessageMatches(ContainsSubstring("/nowhere/libnccl.so.2") &&
                                      ContainsSubstring("DYNAMICCL_NCCL_LIBRARY")));
  setenv("DYNAMICCL_NCCL_LIBRARY", NCCL_STAND_IN_FIRST, 1);
  void* first = open_nccl_library();
  CHECK(which(first) == "first");
  // As PyTorch has loaded its own before a trainer asks for the one that is named.
  setenv("DYNAMICCL_NCCL_LIBRARY", NCCL_STAND_IN_SECOND, 1);
  CHECK(which(open_nccl_library()) == "first");
  unsetenv("DYNAMICCL_NCCL_LIBRARY");
  dlclose(first);
  dlclose(first);
}
