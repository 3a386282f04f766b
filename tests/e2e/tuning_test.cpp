#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/e2e/program.hpp"
#include "tuner/table/table.hpp"

using namespace dynamiccl;

namespace {

std::string small_search(const Program& program) {
  return program.file("search.toml", one_cell("\"bare-metal\"", "gloo") +
                                         "[protocol]\nwarmup = 1\niterations = 5\n"
                                         "[tune]\nsweep_launches = 3\nconfirm_launches = 3\n"
                                         "budget_percent = 50\n"
                                         "[tune.gloo]\nsegments = [\"8KiB\"]\n");
}

std::string run_of(const Program& program, const std::string& kind, const std::string& what) {
  const auto found = program.value("SELECT " + what +
                                   " FROM run r JOIN experiment e ON e.id = r.experiment_id WHERE "
                                   "EXISTS (SELECT 1 FROM json_each(e.overrides_json) WHERE "
                                   "value = 'tune=" +
                                   kind + "') ORDER BY r.id DESC");
  return found.is_string() ? found.get<std::string>() : found.dump();
}

}  // namespace

TEST_CASE("a sweep is replayed, and what agents chose is measured on fresh launches", "[E-136]") {
  const Program program;
  const std::string file = small_search(program);
  CHECK(program.run({"tune", file, "--replay"}).exit_code == 2);
  CHECK(program.run({"tune", file, "--confirm"}).exit_code == 2);

  const auto sweep = program.run({"tune", file, "--own", "--sweep"});
  INFO(sweep.err);
  REQUIRE(sweep.exit_code == 0);
  const auto launches = program.value(kOkLaunches).get<int>();
  const auto replay = program.run({"tune", file, "--own", "--replay", "--confirm", "--seeds", "2",
                                   "--agent", "bandit,ppo,coordinate-descent", "--json"});
  INFO(replay.err);
  REQUIRE(replay.exit_code == 0);
  for (const char* column : {"of_exhaustive", "evaluations_to_95", "kept", "slower_than_descent"})
    CHECK(replay.out.find(column) != std::string::npos);
  // Each agent decided under its own name, and every decision says where and on what it knew.
  for (const std::string agent : {"bandit", "ppo"}) {
    const std::string decisions =
        "SELECT count(*) FROM decision d JOIN tuning t ON t.id = d.tuning_id "
        "WHERE t.mode = 'replay' AND t.agent = '" +
        agent + "'";
    INFO(agent);
    CHECK(program.value(decisions).get<int>() > 0);
    CHECK(program.value(decisions + " AND d.regime = ''") == 0);
    CHECK(program.value(decisions + " AND (t.policy_version IS NULL) = (t.agent = 'ppo')") == 0);
    CHECK(program.value(decisions + " AND t.seed = '0' AND d.state_json->'$.group_size' IS NULL") ==
          0);
  }
  // Three rounds that score, each with the default again, and three to twelve that confirm.
  const int fresh = program.value(kOkLaunches).get<int>() - launches;
  CHECK(fresh >= 6);
  CHECK(fresh <= 6 + 12);
  CHECK(run_of(program, "confirm", "r.status") == "complete");
  CHECK(program.processes().empty());
}

TEST_CASE(
    "whole ways to run a workload are chosen between runs, and held against prior and fixed way",
    "[H-23][E-166]") {
  const Program program;
  const std::string file = program.file("ways.toml", R"(name = "ways"
[axes]
environment = "bare-metal"
backend = ["openmpi", "gloo"]
architecture = "ring"
ranks = 2
[[work]]
collective = "allreduce"
size = "1MiB"
algorithm = ["library", "own_ring"]
[protocol]
warmup = 1
iterations = 5
launches = 3
[tune]
confirm_launches = 3
)");
  // An ordinary run has measured every way; a search of its own knows it from there.
  REQUIRE(program.run({"run", file, "--no-report"}).exit_code == 0);
  const auto replay = program.run({"tune", file, "--between-runs", "--replay", "--from", "last",
                                   "--seeds", "2", "--agent", "default,prior,bandit,exhaustive"});
  INFO(replay.err);
  REQUIRE(replay.exit_code == 0);
  for (const char* row : {"prior", "bandit", "exhaustive", "best-fixed"})
    CHECK(replay.out.find(row) != std::string::npos);
  const auto live = program.run({"tune", file, "--between-runs", "--evaluations", "2"});
  INFO(live.err);
  REQUIRE(live.exit_code == 0);
  CHECK(live.err.find("12 measurements of earlier runs are known") != std::string::npos);
  CHECK(run_of(program, "between-runs", "r.status") == "complete");
  CHECK(program
            .value("SELECT count(DISTINCT task_key) FROM decision WHERE kind = 'final' AND "
                   "tuning_id IN (SELECT id FROM tuning WHERE mode = 'live')")
            .get<int>() == 1);
  CHECK(program.run({"tune", file, "--environments"}).exit_code == 2);
  CHECK(program.processes().empty());
}

TEST_CASE("a search leaves a table whose settings are loaded again") {
  const Program program;
  const std::string file = small_search(program);
  const std::string table = program.folder() + "/tuned.json";
  const auto tuned = program.run({"tune", file, "--own", "--agent", "bandit", "--table", table});
  INFO(tuned.err);
  REQUIRE(tuned.exit_code == 0);
  CHECK(std::filesystem::exists(table));
  CHECK(program.value("SELECT count(*) FROM decision").get<int>() > 0);
  CHECK(run_of(program, "live", "r.status") == "complete");
  const auto applied = program.run({"tune", file, "--own", "--apply", table});
  INFO(applied.err);
  // A setting may turn out slower in these few launches; that is an answer, not a failure.
  CHECK((applied.exit_code == 0 || applied.exit_code == 3));
  CHECK(run_of(program, "apply", "r.status") == "complete");
  // The default, and what the table asks for: a table that is judged was measured, not searched.
  CHECK(
      program
          .value("SELECT count(*) FROM decision WHERE kind = 'final' AND tuning_id IN (SELECT id "
                 "FROM tuning WHERE agent = 'table') AND json_extract(candidates_json, '$.tried') "
                 "NOT BETWEEN 1 AND 2")
          .get<int>() == 0);
  // A table that cannot be read leaves no run behind.
  const auto runs = program.value("SELECT count(*) FROM run").get<int>();
  CHECK(program.run({"tune", file, "--apply", program.file("no.json", "{")}).exit_code == 2);
  CHECK(program.value("SELECT count(*) FROM run").get<int>() == runs);
  CHECK(program.processes().empty());
}

TEST_CASE("a table is loaded as it is exported, and what that did stands in it", "[long]") {
  const Program program;
  const std::string file =
      program.file("check.toml", one_cell("\"bare-metal\"", "openmpi") +
                                     "[protocol]\nwarmup = 1\niterations = 5\nmin_iterations = 2\n"
                                     "cell_time_cap = \"20ms\"\n"
                                     "[tune]\nconfirm_launches = 3\nbudget_percent = 10\n"
                                     "[tune.openmpi]\nsegments = [\"8KiB\"]\n");
  const std::string path = program.folder() + "/tuned.json";
  const auto tuned = program.run({"tune", file, "--agent", "bandit", "--table", path});
  INFO(tuned.err);
  REQUIRE(tuned.exit_code == 0);
  // A setting that a job can load, whatever was found.
  ConfigurationTable table = read_table(path);
  REQUIRE(table.entries.size() == 1);
  table.entries[0].setting = {.algorithm = "nonoverlapping", .call_knobs = {}, .launch_knobs = {}};
  table.entries[0].arm = "nonoverlapping";
  write_table(table, path);
  REQUIRE(table.checks.empty());

  const auto checked = program.run({"tune", file, "--check", path});
  INFO(checked.err);
  REQUIRE(checked.exit_code == 0);
  const ConfigurationTable after = read_table(path);
  CHECK(after.epoch == table.epoch + 1);
  CHECK(after.entries == table.entries);
  std::set<std::uint64_t> sizes;
  for (const TableEntry& check : after.checks) {
    CHECK(check.evidence.launches > 0);
    sizes.insert(check.size.count());
  }
  CHECK(sizes.contains(1024));  // the size that was searched,
  CHECK(sizes.size() > 5);      // and those that nobody searched
  CHECK(run_of(program, "check", "r.status") == "complete");
  const auto exported =
      program.run({"export", path, "--format", "openmpi", "--out", program.folder() + "/exported"});
  INFO(exported.err);
  // What was surely faster everywhere it acts is exported; else the library's own choice stays.
  const bool nothing = exported.err.find("the library's own choice stays") != std::string::npos;
  CHECK((exported.exit_code == 0) != nothing);
  CHECK(program.processes().empty());
}

TEST_CASE("a search holds settings against each other by one cadence") {
  const Program program;
  const std::string file =
      program.file("search.toml", one_cell("\"bare-metal\"", "gloo") +
                                      "[protocol]\nwarmup = 10\niterations = 5\n"
                                      "batch_target = \"30ms\"\nmax_batch = 100000\n"
                                      "[tune]\nsweep_launches = 3\nconfirm_launches = 3\n"
                                      "budget_percent = 100\n"
                                      "[tune.gloo]\nsegments = [\"8KiB\"]\n");
  const auto tuned = program.run({"tune", file, "--own", "--agent", "random", "--evaluations", "4",
                                  "--table", program.folder() + "/t.json"});
  INFO(tuned.err);
  REQUIRE(tuned.exit_code == 0);
  CHECK(program.value("SELECT count(*) FROM measurement WHERE status = 'ok'").get<int>() > 3);
  // Times of a call were taken anew in every launch, so that batches would differ.
  CHECK(program.value("SELECT count(DISTINCT batch) FROM measurement WHERE status = 'ok'")
            .get<int>() == 1);
}
