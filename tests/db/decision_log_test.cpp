#include "db/decision_log.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/error.hpp"
#include "db/reader.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

DecisionInfo decision(int step, const std::string& arm, double time_us) {
  DecisionInfo row;
  row.task_key = "openmpi/ring/allreduce/2^10/r2n1";
  row.environment = "bare-metal";
  row.regime = "abcd";
  row.step = step;
  row.kind = step == 0 ? "reference" : "explore";
  row.arm = arm;
  row.propensity = 0.5;
  row.candidates_json = R"({"arms": 4})";
  row.asked_json = R"({"algorithm": "ring"})";
  row.time_us = time_us;
  row.reference_us = 10;
  row.reward = -0.5;
  row.reward_json = R"({"base": -0.5})";
  return row;
}

}  // namespace

TEST_CASE("decisions are stored with what they were made from and what came of them", "[E-102]") {
  const ScratchFolder folder;
  const auto path = folder.file("decisions.sqlite");
  Store store(path);
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  const auto launch =
      store_launch(store, plan, plan.groups[0], 0, [](const CellInfo&, int, int) { return 5.0; });
  DecisionLog log(path);
  const auto tuning = log.begin({"run-1", "live", "bandit", "", 18446744073709551615ULL, "{}"});
  auto first = decision(0, "library", 10);
  first.launch = launch;
  auto failed = decision(1, "ring", 0);
  failed.time_us.reset();
  failed.reward.reset();
  failed.reward_json.clear();
  failed.guard = "slower than 2x the Gloo floor";
  log.add(tuning, {first, failed});

  const Reader reader(path);
  const auto rows = reader.query(
      "SELECT t.seed, t.policy_version, d.launch_id, d.time_us, d.guard, d.applied_json FROM "
      "decision d JOIN tuning t ON t.id = d.tuning_id ORDER BY d.id");
  REQUIRE(rows.rows.size() == 2);
  CHECK(std::get<std::string>(rows.rows[0][0]) == "18446744073709551615");
  CHECK(std::holds_alternative<std::monostate>(rows.rows[0][1]));
  CHECK(std::get<std::int64_t>(rows.rows[0][2]) == launch);
  CHECK(std::holds_alternative<std::monostate>(rows.rows[1][3]));
  CHECK_THAT(std::get<std::string>(rows.rows[1][4]), ContainsSubstring("Gloo floor"));
  CHECK_THROWS_WITH(log.begin({"no-run", "live", "bandit", "", 1, "{}"}),
                    ContainsSubstring("has no run \"no-run\""));
}

TEST_CASE("a choice without probability is refused whole", "[E-102]") {
  const ScratchFolder folder;
  const auto path = folder.file("decisions.sqlite");
  Store store(path);
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  DecisionLog log(path);
  const auto tuning = log.begin({"run-1", "replay", "ppo", "0123", 1, "{}"});
  auto impossible = decision(1, "ring", 5);
  impossible.propensity = 0;
  CHECK_THROWS_AS(log.add(tuning, {decision(0, "library", 10), impossible}), Error);
  CHECK(Reader(path).query("SELECT * FROM decision").rows.empty());
}

TEST_CASE("a run's plan grows while it is searched") {
  const ScratchFolder folder;
  const auto path = folder.file("grow.sqlite");
  Store store(path);
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, {}, {});
  store.extend_run("run-1", plan.groups, plan.cells);
  store_launch(store, plan, plan.groups[0], 0, [](const CellInfo&, int, int) { return 5.0; });
  const auto rows = Reader(path).query("SELECT median_us FROM measurement");
  REQUIRE(rows.rows.size() == 1);
  CHECK(std::get<double>(rows.rows[0][0]) == Catch::Approx(5.0));
  CHECK_THROWS_AS(store.extend_run("run-2", plan.groups, plan.cells), Error);
}
