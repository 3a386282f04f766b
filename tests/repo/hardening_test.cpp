#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "containers/command.hpp"
#include "core/vocabulary/json.hpp"
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

// What is built here may be a debug build, whose programs have neither: then it is the optimised
// build's own configuration that says it.
TEST_CASE("every unit of the optimised build guards its stacks and checks its copies", "[long]") {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "hardened-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  CommandOptions options;
  options.timeout = std::chrono::minutes(5);
  const auto configured =
      run_command({DYNAMICCL_CMAKE, "-S", DYNAMICCL_SOURCE_DIR, "--preset", "release", "-B", folder,
                   "-DDYNAMICCL_TESTS=OFF", "-DDYNAMICCL_BENCHMARKS=OFF"},
                  options);
  INFO(configured.out << configured.err);
  REQUIRE(configured.exit_code == 0);
  const auto units = nlohmann::json::parse(std::ifstream(folder + "/compile_commands.json"));
  fs::remove_all(folder);
  std::size_t guarded = 0;
  for (const auto& unit : units) {
    const std::string file = unit["file"];
    // CUDA's compiler is not told.
    if (file.ends_with(".cu")) continue;
    INFO(file);
    const std::string command = unit["command"];
    for (const char* flag : {" -O2", " -fstack-protector-strong", " -D_FORTIFY_SOURCE=2"})
      CHECK(has(command, flag));
    ++guarded;
  }
  CHECK(guarded > 50);
}
