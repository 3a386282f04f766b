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

TEST_CASE("what relays tell of ranks on other hosts makes the regime that of the whole job",
          "[E-117][E-119]") {
  std::string here = fs::temp_directory_path() / "job-facts-XXXXXX";
  std::string there = here;
  REQUIRE(mkdtemp(here.data()) != nullptr);
  REQUIRE(mkdtemp(there.data()) != nullptr);
  const auto rank = [](int number, const char* boot_id, const char* runtime) {
    return nlohmann::json{{"rank", number},
                          {"system", {{"boot_id", boot_id}}},
                          {"process", {{"pid", 7}}},
                          {"namespaces", {{"net", 1}, {"ipc", 2}, {"uts", 3}, {"pid", 4}}},
                          {"environment", {{"variables", {{"NCCL_ALGO", "Ring"}}}}},
                          {"container", {{"runtime", runtime}}}};
  };
  const auto write = [](const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  };
  write(here + "/rank-0000000000000005-0.json", rank(0, "a", "none").dump());
  write(there + "/rank-0000000000000005-1.json", rank(1, "b", "docker").dump());
  write(there + "/rank-0000000000000006-0.json", rank(0, "b", "docker").dump());
  write(there + "/rank-0000000000000005-2.json", "[3]");
  write(there + "/rank-0000000000000005-3.json", R"({"rank":-1})");
  const nlohmann::json of_host{{"environment", {{"variables", {{"NCCL_SECRET", "x"}}}}},
                               {"gpu", {{"driver_version", "9"}}}};
  const auto told = facts_to_relay(there, 5, of_host);
  REQUIRE(told.size() == 1);
  const auto sent = nlohmann::json::parse(told.at(1));
  CHECK(sent["gpu"]["driver_version"] == "9");
  CHECK(sent["environment"]["variables"].size() == 1);

  // What nobody can make sense of is left out, however deep it is.
  const std::string deep(100'000, '[');
  const auto whole = read_job_facts(here, nlohmann::json::object(), 2, 2,
                                    {told.at(1), "", "7", deep, R"({"system":)" + deep});
  const auto part = read_job_facts(here, nlohmann::json::object(), 2, 2);
  fs::remove_all(here);
  fs::remove_all(there);
  REQUIRE(whole);
  CHECK(whole->ranks == 2);
  CHECK(whole->ranks_per_host == 1);
  using Catch::Matchers::ContainsSubstring;
  CHECK_THAT(whole->regime.name, ContainsSubstring("mixed"));
  CHECK_THAT(whole->regime.name, !ContainsSubstring("seen"));
  CHECK(whole->regime.json["ingredients"]["boundary"] == "mixed");
  REQUIRE(part);
  CHECK(whole->regime.id != part->regime.id);
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
