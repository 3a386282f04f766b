#include "orchestrator/tune/measured_places.hpp"

#include <fmt/format.h>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "orchestrator/experiment/tune_reader.hpp"
#include "orchestrator/tune/measured_table.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr const char* kCallOfStep = R"({"step": "llama-7b: forward, weights", "step_calls": "32"})";

/// A database whose cell of 1 KiB has a default, an algorithm and a setting of calls.
std::vector<PlacedCell> measured_cells(const testing::ScratchFolder& folder) {
  const std::string path = folder.file("runs.sqlite");
  auto stored = testing::make_plan("ran", {"bare-metal"}, {"allreduce"}, {1, 2, 3, 4, 5});
  const std::vector<std::tuple<std::string, std::string, double>> cells{
      {"library", "{}", 100},
      {"ring", "{}", 50},
      {"library", R"({"segment_bytes": "8192"})", 200},
      {"library", "{}", 7},
      {"library", kCallOfStep, 9}};  // other work, which is no setting
  std::map<std::string, double> us;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    auto& cell = stored.cells[i];
    std::tie(cell.algorithm, cell.knobs_json, us[cell.id]) = cells[i];
    cell.size_bytes = i == 3 ? 4096 : 1024;  // the last has one setting alone: it says nothing
  }
  Store store(path);
  store.begin_run(stored.run, stored.groups, stored.cells);
  for (int block = 0; block < 3; ++block)
    testing::store_launch(store, stored, stored.groups[0], block,
                          [&](const CellInfo& cell, int, int) { return us.at(cell.id); });
  return stored_places(Reader(path));
}

}  // namespace

TEST_CASE("what a database measured of several settings is a place to start from") {
  const testing::ScratchFolder folder;
  const auto cells = measured_cells(folder);
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].place == "this database: bare-metal");
  CHECK(cells[0].key.bin.log2 == 10);
  REQUIRE(cells[0].log_ratio.size() == 2);
  CHECK(cells[0].log_ratio.at("ring") == Approx(std::log(0.5)));
  CHECK(cells[0].log_ratio.at("library segment_bytes=8192") == Approx(std::log(2.0)));
}

TEST_CASE("which call of a step was measured is no setting of a table", "[A-44]") {
  const testing::ScratchFolder folder;
  const std::string path = folder.file("step.sqlite");
  auto stored = testing::make_plan("ran", {"bare-metal"}, {"allreduce"}, {1024, 1025});
  for (auto& cell : stored.cells) cell.knobs_json = kCallOfStep;
  stored.cells[1].size_bytes = 1024;
  stored.cells[1].algorithm = "ring";
  {
    Store store(path);
    store.begin_run(stored.run, stored.groups, stored.cells);
    for (int block = 0; block < 3; ++block)
      testing::store_launch(
          store, stored, stored.groups[0], block,
          [](const CellInfo& cell, int, int) { return cell.algorithm == "ring" ? 50.0 : 100.0; });
  }
  const auto table = measured_table(Reader(path), {"ran"}, Backend::openmpi, {});
  REQUIRE(!table.entries.empty());
  for (const auto& entry : table.entries) CHECK(entry.setting.call_knobs.empty());
}

TEST_CASE("a plan starts from other places, says from which, and how far they were right") {
  const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  const Experiment experiment = parse_experiment(R"(name = "demo"
[axes]
environment = "bare-metal"
backend = "gloo"
architecture = "ring"
ranks = 2
[[work]]
collective = "allreduce"
size = "1MiB"
[tune.gloo.launch]
"malloc.keep" = [true]
)",
                                                 "demo.toml", {}, profiles);
  TunePlan plan =
      make_tune_plan(experiment, make_plan(experiment, {}, nullptr), tune_options_of(experiment));
  TuneTask& task = plan.tasks.at(0);
  REQUIRE(task.arms() == 2);
  CHECK_THAT(start_from_places(plan, experiment, {}),
             ContainsSubstring("nothing that was measured"));
  const ActionSpace& space = *task.search.task.space;
  const PlacedCell cell{"a machine: singularity",
                        true,
                        task.search.task.key.task,
                        {{setting_key(space.setting(space.arms()[1])), std::log(0.5)}}};
  CHECK_THAT(start_from_places(plan, experiment, {cell}),
             ContainsSubstring("1 other place") && ContainsSubstring("a machine: singularity") &&
                 ContainsSubstring("1 of 1 cell"));
  TuningResult result;
  TunedTask tuned;
  tuned.candidate = 1;
  CHECK(judged_places(plan, result).empty());
  tuned.ratio = Ratio{.value = 0.8};
  result.tasks.push_back(tuned);
  const double foretold = std::exp(task.search.task.prior_log_us[1]);
  CHECK(foretold > 0.5);  // one place counts as much as no knowledge
  CHECK(foretold < 0.8);
  CHECK_THAT(judged_places(plan, result),
             ContainsSubstring(fmt::format("foretold x {:.2f}", foretold)) &&
                 ContainsSubstring("measured x 0.80") &&
                 ContainsSubstring(fmt::format("factor of {:.2f}", 0.8 / foretold)) &&
                 ContainsSubstring("1 of these"));
}
