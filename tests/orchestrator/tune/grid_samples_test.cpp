#include "benchmarks/grid_samples.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <tuple>

#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("an ordinary run over settings is something that agents can search", "[E-136]") {
  const testing::ScratchFolder folder;
  const std::string path = folder.file("runs.sqlite");
  auto stored = testing::make_plan("grid", {"bare-metal"}, {"allreduce"}, {1, 2, 3, 4, 5});
  const std::vector<std::tuple<std::string, std::string, double>> cells{
      {"library", "{}", 100},
      {"library", R"({"min_ctas": "16"})", 60},
      {"library", R"({"min_ctas": "4"})", 80},
      {"ring/ll", R"({"min_ctas": "4"})", 120},
      {"library", "{}", 50}};
  REQUIRE(stored.cells.size() == cells.size());
  std::map<std::string, double> us;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    auto& cell = stored.cells[i];
    std::tie(cell.algorithm, cell.knobs_json, us[cell.id]) = cells[i];
    cell.size_bytes = i == 4 ? 4096 : 1024;  // the last is work of its own, with one setting alone
  }
  stored.run.name = "grid-demo";
  {
    Store store(path);
    store.begin_run(stored.run, stored.groups, stored.cells);
    for (int block = 0; block < 2; ++block)
      testing::store_launch(store, stored, stored.groups[0], block,
                            [&](const CellInfo& cell, int, int) { return us.at(cell.id) + block; });
  }
  const Reader reader(path);
  const auto tasks = load_grid(reader, find_run(reader, "grid-demo"));
  REQUIRE(tasks.size() == 1);
  const ActionSpace& space = *tasks[0].search.task.space;
  REQUIRE(space.arms().size() == 4);
  CHECK(space.knobs()[0].name == "algorithm");  // implementation first
  std::map<std::string, std::vector<double>> by_text;
  for (std::size_t a = 0; a < 4; ++a) by_text[space.text(space.arms()[a])] = tasks[0].arm_us[a];
  CHECK(tasks[0].arm_us[0] == std::vector<double>{100, 101});
  CHECK(tasks[0].arm_us[1] == std::vector<double>{80, 81});  // 4 before 16: numbers, not words
  CHECK(tasks[0].arm_us[2] == std::vector<double>{60, 61});
  CHECK(tasks[0].arm_us[3] == std::vector<double>{120, 121});
  CHECK(tasks[0].arm_launch[3].size() == 2);

  ReplayOptions options;
  options.agents = {"exhaustive"};
  options.seeds = 1;
  options.parts = 2;
  CHECK(replay(tasks, options, nullptr)[0].choices[0][0] == 2);
  CHECK_THROWS_WITH(find_run(reader, "other"), ContainsSubstring("holds no run of experiment"));
}
