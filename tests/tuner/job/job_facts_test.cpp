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

TEST_CASE("what makes ranks of a machine one host is known of all of them together", "[C-39]") {
  std::string folder = fs::temp_directory_path() / "job-facts-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  const auto rank = [&](int number) {
    return nlohmann::json{
        {"rank", number},
        {"system", {{"boot_id", "b"}, {"hostname", "w" + std::to_string(number)}}},
        {"process", {{"pid", number}}},
        {"namespaces", {{"net", number}, {"uts", number}, {"pid", 4}}},
        {"shm", {{"device", 7}}},
        {"gpu", {{"usable", 2}}},
        {"environment", {{"variables", {{"LD_PRELOAD", "libdynamiccl-onehost.so"}}}}},
        {"container", {{"runtime", "docker"}}}};
  };
  // The tuner's own folder is none of a rank's.
  const nlohmann::json host{
      {"shm", {{"meeting", {{"trouble", "none"}}}, {"folder", {{"inode", 1}}}}}};
  const auto facts_of = [&](const nlohmann::json& first, const nlohmann::json& second) {
    std::ofstream(folder + "/rank-0000000000000005-0.json") << first;
    std::ofstream(folder + "/rank-0000000000000005-1.json") << second;
    const auto facts = read_job_facts(folder, host, 2, 2);
    REQUIRE(facts);
    return *facts;
  };
  const JobFacts facts = facts_of(rank(0), rank(1));
  CHECK(facts.network);
  CHECK(facts.preloaded);
  CHECK(facts.one_dev_shm);
  CHECK(facts.all_gpus);
  CHECK_FALSE(facts.one_network);
  auto other = rank(1);
  other["shm"]["device"] = 8;
  other["gpu"]["usable"] = 1;
  other["environment"] = nlohmann::json::object();
  const JobFacts less = facts_of(rank(0), other);
  CHECK_FALSE(less.preloaded);
  CHECK_FALSE(less.one_dev_shm);
  CHECK_FALSE(less.all_gpus);
  fs::remove_all(folder);
}
