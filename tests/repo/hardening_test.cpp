#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <string>

#include "containers/command.hpp"
#include "core/vocabulary/text.hpp"

using namespace dynamiccl;

namespace {

std::string of(const std::string& file, const std::string& what) {
  REQUIRE_FALSE(find_program("readelf").empty());
  const auto result = run_command({"readelf", "--wide", what, file});
  REQUIRE(result.exit_code == 0);
  return result.out;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The line of a segment, such as GNU_STACK.
std::string segment(const std::string& headers, const std::string& name) {
  for (const auto& line : split(headers, '\n'))
    if (has(line, name)) return line;
  return "";
}

}  // namespace

TEST_CASE("what is built is hardened") {
  for (const auto& name : split(DYNAMICCL_BUILT_PROGRAMS, ' ')) {
    INFO(name);
    const std::string file = std::string(DYNAMICCL_BINARY_DIR) + "/" + name;
    REQUIRE(std::filesystem::exists(file));
    const auto headers = of(file, "--program-headers");
    CHECK_FALSE(segment(headers, "GNU_RELRO").empty());
    const auto stack = segment(headers, "GNU_STACK");
    CHECK((has(stack, "RW ") && !has(stack, "RWE")));
    // The probe is static, for images without libraries: nothing is bound late there.
    if (!has(headers, "INTERP") && !name.ends_with(".so")) continue;
    CHECK(has(of(file, "--file-header"), "DYN ("));
    CHECK(has(of(file, "--dynamic"), "NOW"));
    const auto symbols = of(file, "--dyn-syms");
    // Copies are checked and stacks guarded where code is optimised.
    if (std::string(DYNAMICCL_BUILD_TYPE) != "Debug")
      CHECK((has(symbols, "__stack_chk_fail") && has(symbols, "_chk@")));
  }
}
