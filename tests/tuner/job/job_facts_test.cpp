#include "tuner/job/job_facts.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>

using namespace dynamiccl;
namespace fs = std::filesystem;

TEST_CASE("a regime says when ranks of other nodes were not seen") {
  std::string folder = fs::temp_directory_path() / "job-facts-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  std::ofstream(folder + "/rank-0000000000000005-0.json")
      << R"({"system":{"hostname":"a","boot_id":"b"},"process":{"pid":7},"rank":0,)"
         R"("namespaces":{"net":1,"ipc":2,"uts":3,"pid":4},"container":{"runtime":"none"}})";
  const auto alone = read_job_facts(folder, nlohmann::json::object(), 1, 1);
  const auto part = read_job_facts(folder, nlohmann::json::object(), 2, 2);
  fs::remove_all(folder);
  REQUIRE(alone);
  REQUIRE(part);
  using Catch::Matchers::ContainsSubstring;
  CHECK_THAT(part->regime.name, ContainsSubstring("1 of 2 ranks seen, 2 nodes"));
  CHECK_THAT(alone->regime.name, !ContainsSubstring("seen"));
  // What was learnt there is no knowledge of one host alone.
  CHECK(part->regime.id != alone->regime.id);
  CHECK(part->network);
}

TEST_CASE("facts that nest without end are nobody's facts") {
  std::string folder = fs::temp_directory_path() / "job-facts-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  std::string deep;
  for (int i = 0; i < 40'000; ++i) deep += R"({"a":)";
  deep += "1" + std::string(40'000, '}');
  std::ofstream(folder + "/rank-0000000000000005-0.json")
      << R"({"rank":0,"process":{"pid":)" + deep + "}}";
  const auto facts = read_job_facts(folder, nlohmann::json::object(), 1, 1);
  fs::remove_all(folder);
  REQUIRE(facts);
  CHECK(facts->ranks == 1);
}
