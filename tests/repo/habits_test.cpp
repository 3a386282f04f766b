#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <regex>

#include "tests/repo/source_tree.hpp"

using namespace dynamiccl;

namespace {

constexpr long kMaxLines = 400;
constexpr long kMaxTestLines = 800;

std::vector<std::string> too_long(const std::vector<SourceFile>& files, long limit) {
  std::vector<std::string> result;
  for (const auto& file : files) {
    const auto lines = std::count(file.text.begin(), file.text.end(), '\n');
    if (lines > limit) result.push_back(file.path + ": " + std::to_string(lines) + " lines");
  }
  return result;
}

}  // namespace

TEST_CASE("files stay short enough to be read at once") {
  CHECK(too_long(source_files(product_folders(), {".hpp", ".cpp", ".cu", ".sh"}), kMaxLines) ==
        std::vector<std::string>{});
  CHECK(too_long(source_files({"tests"}, {".hpp", ".cpp"}), kMaxTestLines) ==
        std::vector<std::string>{});
}

TEST_CASE("headers guard themselves and open no namespace for others") {
  for (const auto& file : source_files(product_folders(), {".hpp"})) {
    INFO(file.path);
    CHECK(file.text.starts_with("#pragma once\n"));
    CHECK(file.text.find("using namespace") == std::string::npos);
  }
}

TEST_CASE("no work is left for later in the sources") {
  const std::regex unfinished(
      "\\b(TO"
      "DO|FIX"
      "ME|XX"
      "X|HA"
      "CK)\\b");
  for (const auto& file : source_files(product_folders(), {".hpp", ".cpp", ".cu", ".sql", ".sh"})) {
    INFO(file.path);
    CHECK_FALSE(std::regex_search(file.text, unfinished));
  }
}
