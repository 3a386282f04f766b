#pragma once

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <iterator>
#include <string>

namespace dynamiccl::testing {

/// Where the tables are that tests import.
inline const std::string kTables = DYNAMICCL_SOURCE_DIR "/tests/orchestrator/import/";

/// The text of one of them.
inline std::string text_of(const std::string& name) {
  std::ifstream file(kTables + name);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace dynamiccl::testing
