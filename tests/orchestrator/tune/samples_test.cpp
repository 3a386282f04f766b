#include "orchestrator/tune/samples.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "orchestrator/experiment/tune_reader.hpp"
#include "orchestrator/run/executor.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

Experiment parsed() {
  static const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  return parse_experiment(R"(name = "demo"
[axes]
environment = ["bare-metal", "cross-docker"]
backend = "gloo"
architecture = "ring"
ranks = 2
[[work]]
collective = "allreduce"
size = "1MiB"
[tune.gloo]
segments = ["32KiB"]
[tune.gloo.launch]
"malloc.huge_pages" = [true]
)",
                          "demo.toml", {}, profiles);
}

TunePlan planned(const Experiment& experiment, bool huge_pages) {
  TuneOptions options = tune_options_of(experiment);
  options.huge_pages = huge_pages;
  return make_tune_plan(experiment, make_plan(experiment, {}, nullptr), options);
}

/// The database of a sweep of one environment: launch b of every group takes 100 + b us.
Reader stored_sweep(const testing::ScratchFolder& folder, const Experiment& experiment,
                    bool huge_pages, const std::string& environment, int blocks) {
  const TunePlan tuned = planned(experiment, huge_pages);
  Store store(folder.file("runs.sqlite"));
  Plan plan = plan_for(tuned, all_arms(tuned), "");
  std::erase_if(plan.groups,
                [&](const PlannedGroup& group) { return group.environment != environment; });
  testing::SyntheticPlan stored;
  stored.run = testing::make_plan("sweep", {environment}, {"allreduce"}, {1024}).run;
  stored.run.name = experiment.name;
  stored.run.overrides = {kSweepMark};
  stored.groups = group_rows(experiment, plan);
  stored.cells = cell_rows(plan);
  store.begin_run(stored.run, stored.groups, stored.cells);
  for (int block = 0; block < blocks; ++block)
    for (const GroupInfo& group : stored.groups)
      testing::store_launch(store, stored, group, block,
                            [&](const CellInfo&, int, int) { return 100.0 + block; });
  return Reader(folder.file("runs.sqlite"));
}

}  // namespace

TEST_CASE("a stored sweep is read without the machine that made it", "[E-136]") {
  const testing::ScratchFolder folder;
  const Experiment experiment = parsed();
  const Reader reader = stored_sweep(folder, experiment, true, "cross-docker", 3);
  const std::string run_id = find_sweep(reader, "demo", "demo.toml");
  CHECK(measured_huge_pages(reader, run_id));

  TunePlan plan = planned(experiment, true);
  REQUIRE(plan.tasks.size() == 2);
  const auto tasks = load_samples(reader, plan, run_id);
  // What the sweep knows nothing of is no task; plan and samples stay side by side.
  REQUIRE(tasks.size() == 1);
  REQUIRE(plan.tasks.size() == 1);
  CHECK(plan.tasks[0].environment == "cross-docker");
  CHECK(tasks[0].search.task.key == plan.tasks[0].search.task.key);
  REQUIRE(tasks[0].arm_us.size() == plan.tasks[0].arms());
  for (std::size_t a = 0; a < tasks[0].arm_us.size(); ++a) {
    CHECK(tasks[0].arm_us[a] == std::vector<double>{100, 101, 102});
    CHECK(tasks[0].arm_launch[a].size() == 3);
  }
  // Settings of one launch share it, those that are fixed at launch do not.
  const ActionSpace& space = *plan.tasks[0].search.task.space;
  for (std::size_t a = 1; a < space.arms().size(); ++a) {
    const bool same_group =
        space.setting(space.arms()[a]).launch_knobs == space.setting(space.arms()[0]).launch_knobs;
    CHECK((tasks[0].arm_launch[a] == tasks[0].arm_launch[0]) == same_group);
  }
}

TEST_CASE("a sweep without huge pages has none among its settings, an empty one is refused") {
  const testing::ScratchFolder folder;
  const Experiment experiment = parsed();
  const Reader reader = stored_sweep(folder, experiment, false, "bare-metal", 0);
  const std::string run_id = find_sweep(reader, "demo", "demo.toml");
  CHECK_FALSE(measured_huge_pages(reader, run_id));
  TunePlan plan = planned(experiment, false);
  CHECK_THROWS_WITH(load_samples(reader, plan, run_id), ContainsSubstring("measured none"));
  Plan cells = make_plan(experiment, {}, nullptr);
  keep_measured_cells(cells, reader, run_id);
  CHECK(cells.possible_cells() == 0);
}
