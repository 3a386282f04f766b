#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/trust.hpp"
#include "reports/queries/query.hpp"
#include "reports/render/answer.hpp"
#include "reports/render/comparison_junit.hpp"
#include "reports/render/comparison_render.hpp"
#include "reports/render/render.hpp"
#include "tests/reports/compare/compared_runs.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

const auto kElsewhere = [](SyntheticPlan& plan) {
  plan.groups = {plan.groups[1]};
  std::erase_if(plan.cells, [&](const CellInfo& c) { return c.group_id != plan.groups[0].id; });
  plan.groups[0].environment = "single-docker";
};

}  // namespace

TEST_CASE("a side of several environments has no one partner in a third", "[G-04]") {
  Runs runs;
  runs.add("run-1", 100);
  runs.add("run-2", 150, 6, kElsewhere);
  CHECK_THROWS_WITH(runs.compare("run-1", "run-2"),
                    ContainsSubstring("no environment in common (A bare-metal, cross-docker; B "
                                      "single-docker)") &&
                        ContainsSubstring("no one partner for each cell"));
  // Told to compare anyway, nobody would know better.
  ComparisonOptions anyway;
  anyway.anyway = true;
  CHECK_THROWS_AS(runs.compare("run-2", "run-1", anyway), Error);
}

TEST_CASE("a row of two environments names both", "[G-04]") {
  Runs runs;
  const auto bare = [](SyntheticPlan& plan) {
    plan.groups = {plan.groups[0]};
    std::erase_if(plan.cells, [&](const CellInfo& c) { return c.group_id != plan.groups[0].id; });
  };
  runs.add("run-1", 100, 6, bare);
  runs.add("run-2", 150, 6, kElsewhere);
  const auto result = runs.compare("run-1", "run-2");
  CHECK(result.cells.size() == 2);
  CHECK_THAT(render_comparison(result, OutputFormat::text),
             ContainsSubstring("environment bare-metal | single-docker"));
  CHECK_THAT(render_comparison(result, OutputFormat::csv),
             ContainsSubstring("bare-metal | single-docker"));
}

TEST_CASE("a run is itself in a copy of its database, too", "[G-04]") {
  Runs runs;
  runs.add("run-1", 100);
  Runs copy;
  copy.add("run-1", 100);
  CHECK_THROWS_WITH(runs.compare("run-1", copy.folder.file("a.sqlite")),
                    ContainsSubstring("same measurements"));
}

TEST_CASE("what is missing for one reason is told once", "[G-04]") {
  Runs runs;
  runs.add("run-1", 100);
  runs.add("run-2", 100);
  auto a = load_side(parse_side("run-1", {runs.folder.file("a.sqlite"), "last"}), {});
  auto b = load_side(parse_side("run-2", {runs.folder.file("a.sqlite"), "last"}), {});
  while (b.figures.size() > 1) {
    b.without_result.push_back({b.figures.back(), "failed: the link went down"});
    b.figures.pop_back();
  }
  const auto result = compare_sides(std::move(a), std::move(b), {});
  REQUIRE(result.missing.size() == 3);
  const auto groups = missing_groups(result.missing);
  REQUIRE(groups.size() == 2);
  CHECK(groups[1].what == "bare-metal openmpi ring, 2 ranks: 1 cell (allreduce; 64 KiB)");
  CHECK(groups[0].what ==
        "cross-docker openmpi ring, 2 ranks: 2 cells (allreduce; 1 KiB to 64 KiB)");
  CHECK_THAT(render_comparison(result, OutputFormat::text),
             ContainsSubstring("2 cells (allreduce; 1 KiB to 64 KiB): no result in B: failed: the "
                               "link went down"));
  CHECK_THAT(comparison_junit(result),
             ContainsSubstring("tests=\"3\" failures=\"0\" errors=\"2\""));
}

TEST_CASE("a ratio that the two medians contradict says so", "[G-04]") {
  Runs runs;
  // Launches of two kinds: of all pairs the typical ratio is 0.73, that of the medians is 1.1.
  runs.add("run-1", 10, [](const GroupInfo&, int block) { return block < 8 ? 100.0 : 150.0; });
  runs.add("run-2", 10, [](const GroupInfo&, int block) { return block < 4 ? 60.0 : 110.0; });
  const auto result = runs.compare("run-1", "run-2");
  CHECK(result.cells[0].time_ratio.value < 0.8);
  CHECK_THAT(result.cells[0].note, ContainsSubstring("the medians alone have ratio 1.100"));
  CHECK_THAT(render_comparison(result, OutputFormat::text),
             ContainsSubstring("typical of their pairs (Hodges-Lehmann), not that of"));
}

TEST_CASE("a side's independence is judged among all groups of its run", "[G-04]") {
  // Alone the drifting one would fail at 5 %, among two it does not.
  Runs runs;
  const std::array<double, 6> drifting{1.00, 1.01, 1.03, 1.02, 1.05, 1.04};
  const std::array<double, 6> steady{1.02, 1.00, 1.03, 1.01, 1.00, 1.02};
  runs.add("run-1", 6, [&](const GroupInfo& group, int block) {
    const auto& series = group.environment == "bare-metal" ? drifting : steady;
    return 100 * series[static_cast<std::size_t>(block)];
  });
  const Reader reader(runs.folder.file("a.sqlite"));
  const auto figures = load_figures(reader, run_scope(reader, "run-1"));
  const auto of_run = trust_notes(reader, "run-1", figures);
  const CellConditions where = {{"environment", "bare-metal"}};
  const auto shown = filter_figures(figures, where);
  const auto alone = test_groups(shown);
  const auto all = test_groups(figures);
  REQUIRE(alone.size() == 1);
  REQUIRE(all.size() == 2);
  CHECK(all[0].p == std::min(1.0, 2 * alone[0].p));
  CHECK(alone[0].fails());
  CHECK_FALSE(all[0].fails());
  const auto side =
      load_side(parse_side("environment=bare-metal", {runs.folder.file("a.sqlite"), "last"}), {});
  CHECK_THAT(join(side.trust, "\n"), ContainsSubstring("nothing against it in 1 group"));
}

TEST_CASE("launches that failed in B alone leave no verdict in its favour", "[G-04]") {
  Runs runs;
  runs.add("run-1", 100);
  runs.add("run-2", 100);
  const auto plan =
      make_plan("run-2", {"bare-metal", "cross-docker"}, {"allreduce"}, {1024, 65536});
  for (int block = 6; block < 8; ++block) {
    const auto row = runs.store.begin_launch("run-2", make_start(plan.groups[0].id, block));
    runs.store.finish_launch(row, make_end(LaunchStatus::failed, "rank 1 was killed by signal 11"),
                             {});
  }
  const auto result = runs.compare("run-1", "run-2");
  CHECK(result.count(Verdict::same) == 2);
  CHECK(result.count(Verdict::unclear) == 2);
  CHECK(result.overall() == Verdict::unclear);
  CHECK_THAT(render_comparison(result, OutputFormat::text),
             ContainsSubstring("B failed: 2 of 8 launches not ok, worst: rank 1 was killed"));
  const auto junit = comparison_junit(result);
  CHECK_THAT(junit, ContainsSubstring("tests=\"4\" failures=\"0\" errors=\"2\" skipped=\"0\""));
  CHECK_THAT(junit, ContainsSubstring("<error type=\"LAUNCHES_FAILED\""));
  // The other way round it is A that they speak against.
  const auto fixed = runs.compare("run-2", "run-1");
  CHECK(fixed.overall() == Verdict::same);
  CHECK_THAT(fixed.cells[0].note + fixed.cells[2].note, ContainsSubstring("A failed: 2 of 8"));
}

TEST_CASE("the noise told under a side is that of its own launches", "[G-04]") {
  Runs runs;
  auto plan = make_plan("run-1", {"bare-metal", "cross-docker"}, {"allreduce"}, {1024});
  runs.store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < 4; ++block) {
    for (const auto& group : plan.groups) {
      auto end = make_end();
      end.noise_flags_json = group.environment == "cross-docker"
                                 ? R"x(["others used the CPUs meanwhile: 80 % (limit 25 %)"])x"
                                 : "[]";
      const auto start = make_start(group.id, block);
      runs.store.finish_launch(
          runs.store.begin_launch("run-1", start), end,
          make_records(plan.cells, group.id, start.uuid, 2, 10,
                       [](const CellInfo&, int, int iteration) { return 100 + iteration % 3; }));
    }
  }
  runs.store.end_run("run-1", "complete");
  const auto trust = [&](const char* side) {
    const SideDefaults defaults{runs.folder.file("a.sqlite"), "last"};
    return join(load_side(parse_side(side, defaults), {}).trust, "\n");
  };
  CHECK_THAT(trust("bare-metal"), ContainsSubstring("noise gate: none of 4 launches flagged"));
  CHECK_THAT(trust("cross-docker"), ContainsSubstring("noise gate: 4 of 4 launches FLAGGED"));
}

TEST_CASE("what --where leaves nothing of is named, with what there is", "[G-04]") {
  Runs runs;
  runs.add("run-1", 0);
  const auto side = [&](const std::vector<std::pair<std::string, std::string>>& where) {
    const SideDefaults defaults{runs.folder.file("a.sqlite"), "last"};
    return load_side(parse_side("bare-metal", defaults), where);
  };
  CHECK(side({{"backend", "openmpi"}}).figures.size() == 2);
  CHECK_THROWS_WITH(side({{"backend", "opnmpi"}}),
                    ContainsSubstring("--where backend=opnmpi: no measured cell of bare-metal") &&
                        ContainsSubstring("known: openmpi. Did you mean \"openmpi\"?"));
  CHECK_THROWS_WITH(side({{"backend", ""}}), ContainsSubstring("--where backend=: no measured"));
  CHECK_THROWS_WITH(
      side({{"backend", "openmpi"}, {"size_bytes", "1MB"}}),
      ContainsSubstring("--where size_bytes=1MB") && ContainsSubstring("known: 1024, 65536"));
  // Each value is there, but not in one cell.
  runs.add("run-2", 100, 3, [](SyntheticPlan& plan) {
    plan.cells[0].collective = "broadcast";
    plan.cells[2].collective = "broadcast";
  });
  CHECK_THROWS_WITH(side({{"collective", "broadcast"}, {"size_bytes", "64KiB"}}),
                    ContainsSubstring("meets all of --where collective=broadcast and "
                                      "size_bytes=64KiB") &&
                        ContainsSubstring("query latency"));
}

TEST_CASE("the method line says what the ratio is, by launches and pairs", "[G-04]") {
  Runs runs;
  runs.add("run-1", 100, 4);
  runs.add("run-2", 110, 4);
  runs.add("run-4", 100, 6);
  runs.add("run-5", 110, 6);
  const auto method = [&](const char* a, const char* b) {
    return render_comparison(runs.compare(a, b), OutputFormat::text);
  };
  CHECK_THAT(method("run-1", "run-2"),
             ContainsSubstring("method: ratio = median of B's launches / of A's (not paired, and "
                               "fewer than six of a side or of unlike spread); [95 %") &&
                 !ContainsSubstring("not that of"));
  CHECK_THAT(method("run-4", "run-5"),
             ContainsSubstring("ratio = time of a launch of B / of A, typical of their pairs "
                               "(Hodges-Lehmann), not that of the two medians; ["));
  runs.add("run-6", 0, 4);
  CHECK_THAT(method("bare-metal", "cross-docker"),
             ContainsSubstring("ratio = time of a launch of B / of A, median of their pairs (fewer "
                               "than six), not that of the two medians; ["));
}

TEST_CASE("a side that came to no end says so", "[G-04]") {
  Runs runs;
  runs.add("run-1", 100);
  runs.add("run-2", 100);
  runs.store.end_run("run-2", "interrupted");
  const auto result = runs.compare("run-1", "run-2");
  const auto text = render_comparison(result, OutputFormat::text);
  CHECK_THAT(text, ContainsSubstring("run run-2 (synthetic") &&
                       ContainsSubstring("NOT COMPLETE: interrupted\n"));
  CHECK(text.find("NOT COMPLETE") > text.find("B: run-2"));
  const auto document = nlohmann::json::parse(comparison_json(result, 0));
  CHECK(document["a"]["run_status"] == "complete");
  CHECK(document["b"]["run_status"] == "interrupted");
}
