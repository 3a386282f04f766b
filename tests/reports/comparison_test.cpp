#include "reports/comparison.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

/// Launch medians that differ a little from launch to launch, and a lot from block to block.
double planted(const std::string& environment, int block) {
  const double little = 1 + 0.001 * ((block * 7 + (environment == "bare-metal" ? 0 : 3)) % 5);
  return (environment == "bare-metal" ? 100.0 : 110.0) * (1 + 0.3 * block) * little;
}

class Runs {
 public:
  Runs() : store(folder.file("a.sqlite")) {}

  /// @param factor all times times this, without the spread between blocks
  void add(const std::string& id, double factor, int launches = 6,
           const std::function<void(SyntheticPlan&)>& change = {}) {
    auto plan = make_plan(id, {"bare-metal", "cross-docker"}, {"allreduce"}, {1024, 65536});
    if (change) change(plan);
    store.begin_run(plan.run, plan.groups, plan.cells);
    for (int block = 0; block < launches; ++block) {
      for (const auto& group : plan.groups) {
        store_launch(store, plan, group, block, [&](const CellInfo&, int, int) {
          return factor > 0 ? factor * (1 + 0.001 * (block % 3))
                            : planted(group.environment, block);
        });
      }
    }
    store.end_run(id, "complete");
  }

  [[nodiscard]] Comparison compare(const std::string& a, const std::string& b,
                                   const ComparisonOptions& options = {}) const {
    const SideDefaults defaults{folder.file("a.sqlite"), "last"};
    return compare_sides(load_side(parse_side(a, defaults), {}),
                         load_side(parse_side(b, defaults), {}), options);
  }

  ScratchFolder folder;
  Store store;
};

}  // namespace

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

TEST_CASE("where ranks were let run is the first difference told") {
  Runs runs;
  const auto bound = [&](const std::string& id, const std::vector<int>& of_rank_one) {
    auto plan = make_plan(id, {"bare-metal"}, {"allreduce"}, {1024});
    plan.run.host_json = R"({"cpu":{"model":")" + id + R"("}})";
    runs.store.begin_run(plan.run, plan.groups, plan.cells);
    for (int block = 0; block < 3; ++block) {
      auto start = make_start(plan.groups[0].id, block);
      start.uuid = id + start.uuid;
      const auto row = runs.store.begin_launch(id, start);
      auto files = make_records(plan.cells, plan.groups[0].id, start.uuid, 2, 10,
                                [&](const CellInfo&, int, int) { return 10.0 + block; });
      for (int rank = 0; rank < 2; ++rank) {
        for (auto& record : files[static_cast<std::size_t>(rank)].records)
          if (auto* facts = std::get_if<FactsRecord>(&record))
            facts->facts["process"]["affinity"] = rank == 0 ? std::vector<int>{0} : of_rank_one;
      }
      runs.store.finish_launch(row, make_end(), files);
    }
    runs.store.end_run(id, "complete");
  };
  bound("run-1", {0});
  bound("run-2", {1, 2});
  const auto result = runs.compare("run-1", "run-2");
  REQUIRE(result.provenance.size() == 2);
  CHECK(result.provenance[0].what == "placement bare-metal openmpi");
  CHECK(result.provenance[0].a == "rank 0 on CPUs [0],rank 1 on CPUs [0]");
  CHECK(result.provenance[0].b == "rank 0 on CPUs [0],rank 1 on CPUs [1,2]");
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
  CHECK(result.only_in_a == 1);
  CHECK(result.overall() == Verdict::unclear);
  const auto junit = comparison_junit(result);
  CHECK_THAT(junit, ContainsSubstring("tests=\"3\" failures=\"0\" errors=\"1\" skipped=\"0\""));
  CHECK_THAT(junit, ContainsSubstring("no result in B: unsupported: no such device"));
}

TEST_CASE("JSON holds cells, counts, verdict and exit code; JUnit fails what is slower") {
  Runs runs;
  runs.add("run-1", 100);
  runs.add("run-2", 120);
  const auto result = runs.compare("run-1", "run-2");
  const auto json = nlohmann::json::parse(comparison_json(result, 3));
  CHECK(json["verdict"] == "SLOWER");
  CHECK(json["exit_code"] == 3);
  CHECK(json["counts"]["SLOWER"] == 4);
  CHECK(json["band"] == 0.02);
  CHECK(json["correction"] == "benjamini-hochberg");
  REQUIRE(json["cells"].size() == 4);
  CHECK_THAT(json["cells"][0]["ratio"].get<double>(), WithinRel(1.2, 1e-9));
  CHECK(json["cells"][0]["environment"] == "bare-metal");
  const auto junit = comparison_junit(result);
  CHECK_THAT(junit, ContainsSubstring("failures=\"4\""));
  CHECK_THAT(junit, ContainsSubstring("<failure type=\"SLOWER\" message=\"time of B / time of A = "
                                      "1.2000"));
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
  const auto json = nlohmann::json::parse(comparison_json(result, 5));
  CHECK(json["a"]["trust"].size() == result.a.trust.size());
  CHECK(json["b"]["trust"].back() == result.b.trust.back());
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
