#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "reports/queries/registry.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

TEST_CASE("a query's description is told to its end, however many lines its file gives it") {
  const auto queries = named_queries();
  const auto described = [&](const std::string& name) {
    return std::find_if(queries.begin(), queries.end(),
                        [&](const auto& query) { return query.name == name; })
        ->description;
  };
  CHECK_THAT(described("architecture"), ContainsSubstring("is expected to be the highest from") &&
                                            EndsWith("and the best that was measured"));
  CHECK_THAT(described("training"), EndsWith("what was expected (A-13)"));
  // A line that goes on is indented; what follows at the margin is a remark of its own.
  for (const auto& file :
       std::filesystem::directory_iterator(DYNAMICCL_SOURCE_DIR "/reports/queries")) {
    INFO(file.path());
    std::ifstream text(file.path());
    std::string line;
    bool row = false;
    while (std::getline(text, line) && line.starts_with("--")) {
      if (row && !line.starts_with("--   ")) {
        const auto word = line.substr(3, line.find(' ', 3) - 3);
        CHECK((std::isupper(static_cast<unsigned char>(line[3])) != 0 || word.ends_with(":")));
        break;
      }
      row = row || line.starts_with("-- row: ");
    }
  }
}
