#include "reports/compare/comparison.hpp"

#include <SQLiteCpp/SQLiteCpp.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "reports/model/figures.hpp"
#include "reports/render/comparison_junit.hpp"
#include "reports/render/comparison_render.hpp"
#include "reports/render/render.hpp"
#include "tests/reports/compare/compared_runs.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

TEST_CASE("environments of one run are compared block by block", "[G-04]") {
  Runs runs;
  runs.add("run-1", 0);
  const auto result = runs.compare("bare-metal", "cross-docker");
  REQUIRE(result.cells.size() == 2);
  CHECK(result.cells[0].verdict == Verdict::slower);
  CHECK_THAT(result.cells[0].time_ratio.value, WithinRel(1.1, 0.005));
  REQUIRE(result.cells[0].time_ratio.interval);
  CHECK(result.cells[0].time_ratio.interval->method == "signed-rank-paired");
  CHECK(result.overall() == Verdict::slower);
  // What makes the two environments differ is all that is told.
  REQUIRE(result.provenance.size() == 1);
  CHECK(result.provenance[0].what == "profile.kind");
  CHECK(result.provenance[0].b == "cross-docker");
  CHECK(runs.compare("cross-docker", "bare-metal").overall() == Verdict::faster);
}

TEST_CASE("runs are compared unpaired, with the band that was asked for", "[G-04]") {
  Runs runs;
  runs.add("run-1", 100);
  runs.add("run-2", 101);
  runs.add("run-3", 105);
  CHECK(runs.compare("run-1", "run-2").overall() == Verdict::same);
  CHECK(runs.compare("last~2", "last").overall() == Verdict::slower);
  CHECK(runs.compare("run-3", "run-1").overall() == Verdict::faster);
  ComparisonOptions narrow;
  narrow.band.relative = 0.001;
  CHECK(runs.compare("run-1", "run-2", narrow).overall() == Verdict::slower);
  CHECK(runs.compare("run-1", "run-2").cells[0].time_ratio.interval->method == "rank-sum");
}

TEST_CASE("few launches give a ratio, no verdict, and say why") {
  Runs runs;
  runs.add("run-1", 100, 1);
  runs.add("run-2", 200, 6);
  const auto result = runs.compare("run-1", "run-2");
  CHECK(result.overall() == Verdict::unclear);
  CHECK_THAT(result.cells[0].time_ratio.value, WithinRel(2.0, 0.01));
  CHECK_THAT(result.cells[0].note, ContainsSubstring("no interval: 1 launch in A, 6 in B"));
}

TEST_CASE("unlike measurements are refused with what differs, and compared when told to") {
  Runs runs;
  runs.add("run-1", 100);
  runs.add("run-2", 100, 6, [](SyntheticPlan& plan) {
    plan.run.protocol_json = R"({"launches":9,"rank_aggregation":"mean","warmup":3})";
  });
  CHECK_THROWS_WITH(runs.compare("run-1", "run-2"),
                    ContainsSubstring("rank_aggregation: A max, B mean") &&
                        ContainsSubstring("warmup: A -, B 3") && ContainsSubstring("--anyway") &&
                        !ContainsSubstring("launches:"));
  ComparisonOptions anyway;
  anyway.anyway = true;
  const auto result = runs.compare("run-1", "run-2", anyway);
  CHECK(result.overall() == Verdict::same);
  CHECK(result.method.size() >= 2);
  CHECK_THAT(render_comparison(result, OutputFormat::text),
             ContainsSubstring("compared although the method differs"));
}

TEST_CASE("other ranks are another cell, unless told to compare anyway") {
  Runs runs;
  runs.add("run-1", 100);
  runs.add("run-2", 103, 6, [](SyntheticPlan& plan) {
    for (auto& group : plan.groups) group.ranks = 4;
  });
  CHECK_THROWS_WITH(runs.compare("run-1", "run-2"), ContainsSubstring("ranks: A 2, B 4"));
  ComparisonOptions anyway;
  anyway.anyway = true;
  CHECK(runs.compare("run-1", "run-2", anyway).cells.size() == 4);
}

TEST_CASE("two runs in two environments are compared, and the environments named") {
  Runs runs;
  const auto only = [](std::size_t index) {
    return [index](SyntheticPlan& plan) {
      plan.groups = {plan.groups[index]};
      std::erase_if(plan.cells,
                    [&](const CellInfo& cell) { return cell.group_id != plan.groups[0].id; });
    };
  };
  runs.add("run-1", 100, 6, only(0));
  runs.add("run-2", 150, 6, only(1));
  const auto result = runs.compare("run-1", "run-2");
  CHECK(result.cells.size() == 2);
  CHECK(result.overall() == Verdict::slower);
  CHECK_THAT(render_comparison(result, OutputFormat::text),
             ContainsSubstring("environment: A bare-metal | B cross-docker"));
}

TEST_CASE("provenance that differs is told, what is fleeting is not") {
  Runs runs;
  runs.add("run-1", 100, 6, [](SyntheticPlan& plan) {
    plan.run.host_json =
        R"({"cpu":{"model":"EPYC"},"system":{"kernel":"6.1"},"memory":{"available_bytes":1}})";
  });
  runs.add("run-2", 100, 6, [](SyntheticPlan& plan) {
    plan.run.host_json =
        R"({"cpu":{"model":"Xeon"},"system":{"kernel":"6.1"},"memory":{"available_bytes":2}})";
    plan.run.tool_version = "0.1.0 (abcdef1, dirty)";
    plan.groups[0].profile_json = R"({"shm_bytes":1024})";
  });
  const auto result = runs.compare("run-1", "run-2");
  const auto text = render_comparison(result, OutputFormat::text);
  CHECK_THAT(text, ContainsSubstring("host.cpu.model: A EPYC | B Xeon"));
  CHECK_THAT(text, ContainsSubstring("program: A 0.1.0 | B 0.1.0 (abcdef1, dirty)"));
  CHECK_THAT(text, ContainsSubstring("profile bare-metal.shm_bytes: A - | B 1024"));
  CHECK_THAT(text, !ContainsSubstring("available") && !ContainsSubstring("kernel"));
  CHECK(runs.compare("commit:abcdef1", "run-1").cells.size() == 4);
  CHECK_THROWS_WITH(runs.compare("commit:123", "run-1"), ContainsSubstring("abcdef1"));
}

TEST_CASE("a library that became slower with a new version is SLOWER, and both are named") {
  Runs runs;
  runs.add("before", 100);
  runs.add("after", 130);
  SQLite::Database(runs.folder.file("a.sqlite"), SQLite::OPEN_READWRITE)
      .exec(
          "UPDATE launch_rank SET library = 'NCCL', library_version = CASE WHEN launch_id IN "
          "(SELECT l.id FROM launch l JOIN plan_group g ON g.id = l.group_id JOIN run r ON r.id = "
          "g.run_id WHERE r.uuid = 'after') THEN '2.28.9' ELSE '2.27.3' END");
  const auto result = runs.compare("before", "after");
  CHECK(result.overall() == Verdict::slower);
  const auto text = render_comparison(result, OutputFormat::text);
  CHECK_THAT(text, ContainsSubstring("A NCCL 2.27.3 | B NCCL 2.28.9"));
}

TEST_CASE("one list says what passes, for every comparison of machines") {
  Runs runs;
  const auto host = [](double uptime, const char* model) {
    return [=](SyntheticPlan& plan) {
      const nlohmann::json facts{
          {"cpu", {{"model", model}, {"current_mhz", uptime}}},
          {"system", {{"uptime_s", uptime}, {"load_1min", uptime}}},
          {"gpus", {{{"name", "H200"}, {"index", 0}}, {{"name", "H200"}, {"index", 1}}}}};
      plan.run.host_json = facts.dump();
    };
  };
  runs.add("run-1", 100, 6, host(1, "EPYC"));
  runs.add("run-2", 100, 6, host(2, "EPYC"));
  CHECK(runs.compare("run-1", "run-2").provenance.empty());
  runs.add("run-3", 100, 6, host(3, "Xeon"));
  const auto other = runs.compare("run-1", "run-3").provenance;
  REQUIRE(other.size() == 1);
  CHECK(other[0].what == "host.cpu.model");
}

namespace {

using Cpus = std::vector<std::vector<int>>;

/// A run of one group in each environment, whose rank r was let run on `of_ranks[environment][r]`
/// of a machine with those cores.
void add_bound(Runs& runs, const std::string& id, const std::map<std::string, Cpus>& of_ranks,
               const Cpus& cores) {
  std::vector<std::string> environments;
  for (const auto& [environment, cpus] : of_ranks) environments.push_back(environment);
  const auto plan = make_plan(id, environments, {"allreduce"}, {1024});
  runs.store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < 6; ++block) {
    for (const auto& group : plan.groups) {
      auto start = make_start(group.id, block);
      start.uuid = id + start.uuid;
      const auto row = runs.store.begin_launch(id, start);
      auto files = make_records(plan.cells, group.id, start.uuid, 2, 10,
                                [&](const CellInfo&, int, int) { return 10.0 + 0.001 * block; });
      for (std::size_t rank = 0; rank < files.size(); ++rank) {
        for (auto& record : files[rank].records)
          if (auto* facts = std::get_if<FactsRecord>(&record)) {
            facts->facts["process"]["affinity"] = of_ranks.at(group.environment)[rank];
            facts->facts["cpu"]["core_cpus"] = cores;
            facts->facts["system"]["boot_id"] = "boot";
          }
      }
      runs.store.finish_launch(row, make_end(), files);
    }
  }
  runs.store.end_run(id, "complete");
}

const Cpus kFourCores{{0}, {1}, {2}, {3}};

}  // namespace

TEST_CASE("ranks let run on other cores are refused, and named when compared anyway", "[A-34]") {
  Runs runs;
  add_bound(runs, "run-1", {{"bare-metal", {{0}, {0}}}}, kFourCores);
  add_bound(runs, "run-2", {{"bare-metal", {{0}, {1, 2}}}}, kFourCores);
  CHECK_THROWS_WITH(
      runs.compare("run-1", "run-2"),
      ContainsSubstring("not measured alike") &&
          ContainsSubstring("placement: A ranks 0-1 on CPU 0; 1 of 2 ranks can have a core of "
                            "their own, B rank 0 on CPU 0, rank 1 on CPUs 1-2; 2 of 2 ranks") &&
          ContainsSubstring("--anyway"));
  ComparisonOptions anyway;
  anyway.anyway = true;
  const auto result = runs.compare("run-1", "run-2", anyway);
  CHECK(result.overall() == Verdict::same);
  REQUIRE(result.provenance.size() == 1);
  CHECK(result.provenance[0].what == "placement bare-metal openmpi");
  CHECK_THAT(result.provenance[0].a, ContainsSubstring("ranks 0-1 on CPU 0;"));
  CHECK_THAT(result.cells[0].note, ContainsSubstring("placement ranks 0-1 on CPU 0;"));
  add_bound(runs, "run-3", {{"bare-metal", {{0}, {0}}}}, kFourCores);
  CHECK(runs.compare("run-1", "run-3").overall() == Verdict::same);
}

TEST_CASE("two hardware threads of one core are not two cores") {
  Runs runs;
  const Cpus cores{{0, 2}, {1, 3}};
  add_bound(runs, "run-1", {{"bare-metal", {{0}, {1}}}}, cores);
  add_bound(runs, "run-2", {{"bare-metal", {{0}, {2}}}}, cores);
  CHECK_THROWS_WITH(runs.compare("run-1", "run-2"),
                    ContainsSubstring("B rank 0 on CPU 0, rank 1 on CPU 2; 1 of 2 ranks can have"));
}

TEST_CASE("CPU numbers of another machine mean nothing, how ranks share its cores does") {
  Runs runs;
  add_bound(runs, "two", {{"bare-metal", {{0, 1}, {0, 1}}}}, {{0}, {1}});
  add_bound(runs, "four", {{"bare-metal", {{0, 1, 2, 3}, {0, 1, 2, 3}}}}, kFourCores);
  add_bound(runs, "one", {{"bare-metal", {{0}, {0}}}}, {{0}});
  add_bound(runs, "bound", {{"bare-metal", {{3}, {2}}}}, kFourCores);
  add_bound(runs, "other", {{"bare-metal", {{0}, {1}}}}, {{0}, {1}});
  CHECK(runs.compare("two", "four").overall() == Verdict::same);
  CHECK(runs.compare("bound", "other").overall() == Verdict::same);
  CHECK_THROWS_WITH(runs.compare("two", "one"),
                    ContainsSubstring("A ranks 0-1 on all CPUs; 2 of 2 ranks") &&
                        ContainsSubstring("B ranks 0-1 on all CPUs; 1 of 2 ranks"));
  CHECK_THROWS_WITH(runs.compare("four", "other"),
                    ContainsSubstring("B ranks 0-1 on 1 CPU of 1 core; 2 of 2 ranks"));
}

TEST_CASE("a cell on other cores has no verdict beside cells that are alike") {
  Runs runs;
  const Cpus free{{0, 1, 2, 3}, {0, 1, 2, 3}};
  add_bound(runs, "run-1", {{"bare-metal", free}, {"cross-docker", free}}, kFourCores);
  add_bound(runs, "run-2", {{"bare-metal", free}, {"cross-docker", {{0}, {0}}}}, kFourCores);
  const auto result = runs.compare("run-1", "run-2");
  REQUIRE(result.cells.size() == 2);
  CHECK(result.cells[0].verdict == Verdict::same);
  CHECK(result.cells[0].note.empty());
  CHECK(result.cells[1].verdict == Verdict::unclear);
  CHECK_THAT(result.cells[1].note, ContainsSubstring("placement ranks 0-1 on CPUs 0-3;"));
  CHECK(result.overall() == Verdict::unclear);
  // Two environments of one run, too.
  ComparisonOptions anyway;
  anyway.anyway = true;
  CHECK(runs.compare("bare-metal", "cross-docker", anyway).overall() == Verdict::same);
  CHECK_THROWS_WITH(runs.compare("bare-metal", "cross-docker"), ContainsSubstring("placement: A"));
}

TEST_CASE("a cell that failed on one side counts as UNCLEAR, one that nobody planned does not") {
  Runs runs;
  runs.add("run-1", 100);
  runs.add("run-2", 100, 6, [](SyntheticPlan& plan) {
    plan.cells[0].unsupported_reason = "no such device";
    plan.cells.pop_back();
  });
  // The synthetic ranks measure every cell of the plan, the unsupported one too: take it away.
  auto a = load_side(parse_side("run-1", {runs.folder.file("a.sqlite"), "last"}), {});
  auto b = load_side(parse_side("run-2", {runs.folder.file("a.sqlite"), "last"}), {});
  const auto lost = b.figures.front();
  b.figures.erase(b.figures.begin());
  b.without_result.push_back({lost, "unsupported: no such device"});
  const auto result = compare_sides(std::move(a), std::move(b), {});
  REQUIRE(result.missing.size() == 1);
  CHECK(result.missing[0].missing_in == "B");
  CHECK(result.unplanned_in("B") == 1);
  CHECK(result.overall() == Verdict::unclear);
  const auto junit = comparison_junit(result);
  CHECK_THAT(junit, ContainsSubstring("tests=\"4\" failures=\"0\" errors=\"1\" skipped=\"1\""));
  CHECK_THAT(junit, ContainsSubstring("<skipped message=\"not in B's plan\"/>"));
  CHECK_THAT(junit, ContainsSubstring("no result in B: unsupported: no such device"));
}

TEST_CASE("JSON holds cells, counts, verdict and exit code; JUnit fails what is slower") {
  Runs runs;
  runs.add("run-1", 100);
  runs.add("run-2", 120);
  const auto result = runs.compare("run-1", "run-2");
  const auto document = nlohmann::json::parse(comparison_json(result, 3));
  CHECK(document["verdict"] == "SLOWER");
  CHECK(document["exit_code"] == 3);
  CHECK(document["counts"]["SLOWER"] == 4);
  CHECK(document["band"] == 0.02);
  CHECK(document["correction"] == "benjamini-hochberg");
  REQUIRE(document["cells"].size() == 4);
  CHECK_THAT(document["cells"][0]["ratio"].get<double>(), WithinRel(1.2, 1e-9));
  CHECK(document["cells"][0]["environment"] == "bare-metal");
  const auto junit = comparison_junit(result);
  CHECK_THAT(junit, ContainsSubstring("failures=\"4\""));
  CHECK_THAT(junit, ContainsSubstring("<failure type=\"SLOWER\" message=\"time of B / time of A = "
                                      "1.2000"));
}

TEST_CASE("a comparison that was refused is an error in JUnit, not nothing") {
  const auto junit = refusal_junit("last~1", "last", "A and B were not measured alike: <warmup>");
  CHECK_THAT(junit, ContainsSubstring("tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\""));
  CHECK_THAT(junit, ContainsSubstring("name=\"dynamiccl compare last~1 last\""));
  CHECK_THAT(junit,
             ContainsSubstring("message=\"A and B were not measured alike: &lt;warmup&gt;\""));
}

TEST_CASE("what speaks against the figures of both sides stands under a comparison") {
  Runs runs;
  runs.add("run-1", 100);
  runs.add("run-2", 100, 3);
  const auto result = runs.compare("run-1", "run-2");
  const auto text = render_comparison(result, OutputFormat::text);
  CHECK_THAT(text, ContainsSubstring("A: independence of launches: nothing against it in 2") &&
                       ContainsSubstring("B: independence of launches: not tested") &&
                       ContainsSubstring("A and B: noise gate: no launch was judged"));
  const auto document = nlohmann::json::parse(comparison_json(result, 5));
  CHECK(document["a"]["trust"].size() == result.a.trust.size());
  CHECK(document["b"]["trust"].back() == result.b.trust.back());
}

TEST_CASE("what is no side says what would be one") {
  Runs runs;
  runs.add("run-1", 100);
  CHECK_THROWS_WITH(runs.compare("run-1", "mars"),
                    ContainsSubstring("no run \"mars\"") && ContainsSubstring("commit:REVISION"));
  CHECK_THROWS_WITH(runs.compare("run-1", "bare-metal"), ContainsSubstring("not of one kind"));
  CHECK_THROWS_WITH(runs.compare("run-1", "last"), ContainsSubstring("same measurements"));
  CHECK_THROWS_WITH(runs.compare("backend=openmpi", "backend=gloo"),
                    ContainsSubstring("no measured cell with backend gloo"));
  CHECK_THROWS_WITH(runs.compare("bakend=openmpi", "last"), ContainsSubstring("backend"));
}

TEST_CASE("another machine's database is a side") {
  Runs here;
  here.add("run-1", 100);
  Runs there;
  there.add("run-9", 100);
  const auto path = there.folder.file("a.sqlite");
  CHECK(here.compare("run-1", path).cells.size() == 4);
  CHECK(here.compare("run-1", path + ":run-9").b.run_id == "run-9");
}
