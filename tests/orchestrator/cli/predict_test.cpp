// What `predict` prints and refuses.
#include <catch2/catch_test_macros.hpp>
#include <set>

#include "containers/command.hpp"
#include "core/vocabulary/json.hpp"
#include "tests/orchestrator/cli/program.hpp"

using namespace dynamiccl;
using testing::run;

TEST_CASE("predict prints every algorithm of each size, the fastest first", "[F-13][F-14][F-18]") {
  const auto result = run({"predict", "gpus-100k", "--bytes", "1KiB,64MiB", "--json"});
  REQUIRE(result.exit_code == 0);
  const auto rows = nlohmann::json::parse(result.out);
  REQUIRE(rows.size() > 20);
  CHECK(rows.front().at("size_bytes") == 1024);
  CHECK(rows.front().at("against_fastest") == 1.0);
  CHECK(rows.back().at("against_fastest").get<double>() > 1.0);
  CHECK(run({"predict", "cross-site-64"}).out.find("nothing of it was measured") !=
        std::string::npos);
}

TEST_CASE("predict lists the machines, and says what it cannot do") {
  CHECK(run({"predict"}).out.find("rtx2080ti-8x4  (32 ranks, 8 nodes, star)") != std::string::npos);
  const auto refused = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"predict", "rtx2080ti-8x4"});
    const auto result = run(arguments);
    CHECK(result.exit_code == 2);
    return result.err;
  };
  CHECK(refused({"--ranks", "33"}).find("rtx2080ti-8x4 has 32 (8 nodes of 4)") !=
        std::string::npos);
  CHECK(refused({"--operation", "training"}).find("has no model") != std::string::npos);
  CHECK(refused({"--set", "nodes=many"}).find("nodes") != std::string::npos);
}

TEST_CASE("predict sets what SMPI simulates next to the models", "[A-14]") {
  const auto predict = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"predict"});
    arguments.insert(arguments.end(), {"--smpi", "--json"});
    return run(arguments);
  };
  CHECK(predict({"bcube-1024"}).exit_code == 1);
  if (find_program("smpirun").empty()) SKIP("smpirun is not here: libsimgrid-dev brings it");
  CHECK(predict({"bcube-1024"}).err.find("SimGrid has no BCube") != std::string::npos);
  // By the same messages, the shape of the network decides.
  std::set<double> doubling;
  for (const char* machine : {"star-1024", "fat-tree-1024", "torus-1024", "dragonfly-1024"}) {
    INFO(machine);
    const auto result = predict({machine, "--ranks", "64", "--bytes", "1MiB"});
    REQUIRE(result.exit_code == 0);
    int compared = 0;
    for (const auto& row : nlohmann::json::parse(result.out)) {
      if (row.at("smpi_ratio").is_null()) continue;
      ++compared;
      INFO(row.dump());
      if (row.at("algorithm") == "recursive_doubling")
        doubling.insert(row.at("smpi_us").get<double>());
      // At one switch both count the same messages on the same links.
      if (machine != std::string("star-1024")) continue;
      CHECK(row.at("smpi_ratio") > 0.9);
      CHECK(row.at("smpi_ratio") < 1.1);
    }
    CHECK(compared == 3);
  }
  CHECK(doubling.size() == 4);
  const std::vector<std::string> again{"star-1024", "--ranks", "16"};
  CHECK(predict(again).out == predict(again).out);
}
