#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "tests/plugin/agreement/agreement_storm.hpp"

using namespace dynamiccl;

TEST_CASE("processes that are delayed and stopped never differ, and switch often", "[E-118]") {
  std::string folder = std::filesystem::temp_directory_path() / "agreement-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  StormOptions options;
  options.switches = 240;
  options.jobs = 8;
  options.delay_ms = 20;
  const StormResult result = run_storm(options, folder);
  std::filesystem::remove_all(folder);
  CHECK(result.failed_processes == 0);
  CHECK(result.proposals == 240);
  CHECK(result.differing == 0);
  CHECK(result.lost == 0);
  CHECK(result.stops > 0);
  CHECK(20 * result.committed >= result.proposals);
  CHECK(result.adopted > 0);
}
