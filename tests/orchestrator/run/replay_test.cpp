#include "orchestrator/run/replay.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>

#include "core/vocabulary/error.hpp"
#include "db/foreign_run.hpp"
#include "tests/db/synthetic.hpp"
#include "train/spec/training.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using Words = std::vector<std::string>;

std::string told(const Words& then, const Words& now) {
  std::string text;
  for (const auto& difference : command_differences(then, now))
    text += difference.what + ": " + difference.a + " | " + difference.b + "\n";
  return text;
}

/// A table of nccl-tests as a run of one cell.
ForeignRun foreign_table() {
  const auto plan = make_plan("0f0e0d0c-table", {"unknown"}, {"allreduce"}, {1024});
  ForeignRun run;
  run.run = plan.run;
  run.groups = plan.groups;
  run.cells = plan.cells;
  ForeignFigure figure;
  figure.cell_id = plan.cells[0].id;
  figure.time_us = 26.25;
  figure.calls = 20;
  figure.reported_json = "{}";
  run.launches = {{plan.groups[0].id, 0, {}, "", {figure}}};
  run.started_utc = "2024-05-31T23:59:59.000Z";
  run.format = "nccl-tests";
  run.source = "/data/table.txt";
  return run;
}

/// A launch of Gloo on the machine itself with this cell alone, stored in a database.
StoredLaunch loaded_again(const WorkCell& cell) {
  const ScratchFolder folder;
  auto plan = make_plan("run-1", {"bare-metal"}, {"training"}, {1024});
  plan.groups[0].profile_json =
      to_json(load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"}).at("bare-metal"));
  RunConfig config;
  config.backend = Backend::gloo;
  config.ranks = 2;
  config.cells = {cell};
  auto start = make_start(plan.groups[0].id, 0);
  start.run_json = to_json(config);
  Store store(folder.file("x.sqlite"));
  store.begin_run(plan.run, plan.groups, plan.cells);
  store.finish_launch(store.begin_launch(plan.run.id, start), make_end(),
                      make_records(plan.cells, plan.groups[0].id, start.uuid, 2, 3,
                                   [](const CellInfo&, int, int) { return 5.0; }));
  return load_launch(Reader(folder.file("x.sqlite")), start.uuid);
}

}  // namespace

TEST_CASE("a word that came or went does not make all behind it differ") {
  CHECK(told({"mpirun", "-n", "2", "worker"}, {"mpirun", "-n", "2", "worker"}).empty());
  CHECK(told({"a", "--bind", "/x", "worker", "run.json"}, {"a", "worker", "run.json"}) ==
        "from word 1: --bind /x | -\n");
  CHECK(told({"a", "worker"}, {"a", "-v", "worker"}) == "from word 1: - | -v\n");
  CHECK(told({"a", "/old/worker", "run.json"}, {"a", "/new/worker", "run.json"}) ==
        "from word 1: /old/worker | /new/worker\n");
  CHECK(told({"a", "b"}, {}) == "from word 0: a b | -\n");
}

TEST_CASE("a launch of an imported table is not replayed, and the message says what to do") {
  const ScratchFolder folder;
  Store store(folder.file("x.sqlite"));
  store.import_run(foreign_table());
  CHECK_THROWS_WITH(
      load_launch(Reader(folder.file("x.sqlite")), "last"),
      ContainsSubstring("cannot be replayed: it was imported from /data/table.txt "
                        "(nccl-tests), the results of another program") &&
          ContainsSubstring("`dynamiccl run FILE`; `dynamiccl compare 0f0e0d0c last`"));
}

TEST_CASE("a launch whose environment did not start is told, with the database it came from") {
  const ScratchFolder folder;
  const auto other = folder.file("other.sqlite");
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  const auto start = make_start(plan.groups[0].id, 0);
  {
    Store store(other);
    store.begin_run(plan.run, plan.groups, plan.cells);
    store.finish_launch(store.begin_launch(plan.run.id, start),
                        make_end(LaunchStatus::failed, "no engine"), {});
    store.end_run(plan.run.id, "failed");
  }
  CHECK_THROWS_WITH(
      load_launch(Reader(other), start.uuid),
      ContainsSubstring(start.uuid + ": nothing was recorded that could be replayed"));
  const auto mine = folder.file("mine.sqlite");
  Store store(mine);
  store.merge(other);
  CHECK_THROWS_WITH(load_launch(Reader(mine), start.uuid),
                    ContainsSubstring("(imported from " + other + "): nothing was recorded"));
}

TEST_CASE("a stored training launch is made again as far as its ranks' start") {
  TrainingSpec spec;
  spec.method = TrainingMethod::wfbp_a2a;
  spec.packing = Packing::aggregated;
  WorkCell cell = training_cell(spec);
  cell.id = "cell-1";
  cell.knobs["aggregator"] = "127.0.0.1:4711/abcd";  // that launch's
  const auto launch = loaded_again(cell);
  CHECK(training_spec(launch.config.cells.at(0)).method == TrainingMethod::wfbp_a2a);
  CHECK_FALSE(launch.group().cells.at(0).work.knobs.contains("aggregator"));
  LaunchSite site;
  site.worker_folder = "/programs";
  bool starts_trainers = false;
  for (const auto& [part, leaf] : differences_now(launch, site, {}))
    starts_trainers =
        starts_trainers || (part == "command" && leaf.b.find("/programs/") != std::string::npos);
  CHECK(starts_trainers);
}

TEST_CASE("a stored training of a setting that is none any more is refused with what holds now") {
  WorkCell cell = training_cell(TrainingSpec());
  cell.id = "cell-1";
  cell.knobs["gossip_pull"] = "0.25";
  try {
    loaded_again(cell);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    CHECK_THAT(error.what(),
               ContainsSubstring("cannot be replayed: training has no setting \"gossip_pull\"; it "
                                 "is 0.5, and no setting any more"));
  }
}

TEST_CASE("a database sets no variable that no run records", "[safety]") {
  const char* path = std::getenv("PATH");
  const std::string before = path == nullptr ? "" : path;
  StoredLaunch launch;
  launch.variables = {{"PATH", "/nowhere"}, {"IFS", "x"}, {"UCX_REPLAY_TEST", "1"}};
  std::vector<SurroundingDifference> differences;
  for (const char* name : {"PATH", "IFS", "UCX_REPLAY_TEST"})
    differences.push_back({"variable (set back)", {name, "then", "-"}});
  restore_variables(launch, differences);
  const char* after = std::getenv("PATH");
  const std::string path_after = after == nullptr ? "" : after;
  setenv("PATH", before.c_str(), 1);
  CHECK(path_after == before);
  CHECK(std::getenv("IFS") == nullptr);
  REQUIRE(std::getenv("UCX_REPLAY_TEST") != nullptr);
  CHECK(std::string(std::getenv("UCX_REPLAY_TEST")) == "1");
  unsetenv("UCX_REPLAY_TEST");
}
