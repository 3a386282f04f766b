#include "reports/model/trust.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/text.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/answer.hpp"
#include "reports/render/render.hpp"
#include "reports/render/run_page.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Eight launches of one group: times drift by 5 % a launch when asked, every third is flagged,
/// and the first iterations are slow in block 0.
class DriftingRun {
 public:
  explicit DriftingRun(double drift) : store(folder.file("a.sqlite")) {
    plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024, 4096});
    store.begin_run(plan.run, plan.groups, plan.cells);
    for (int block = 0; block < 8; ++block) add_launch(block, drift);
    store.set_stopping("run-1", plan.groups[0].id,
                       R"({"target_interval":0.05,"reached":false,"launches":8,"cells":2,
                           "wide_cells":1,"widest":0.093,"stopped_by":"time_budget"})");
    store.end_run("run-1", "complete");
  }

  void add_launch(int block, double drift) {
    const auto start = make_start(plan.groups[0].id, block);
    const auto row = store.begin_launch("run-1", start);
    auto records = make_records(
        plan.cells, plan.groups[0].id, start.uuid, 2, 40, [&](const CellInfo&, int, int iteration) {
          const double head = block == 0 && iteration < 10 ? 2.0 : 1.0;
          const double noise = 0.001 * ((block * 7 + iteration * 3) % 11);
          return 10 * head * (1 + drift * block + noise + 0.02 * ((block * 5) % 8 % 3));
        });
    for (int rank = 0; rank < 2; ++rank) {
      ClockRecord clock;
      clock.rank = rank;
      clock.error_us = clock.end_error_us = 1.5 * rank;
      records[static_cast<std::size_t>(rank)].records.emplace_back(clock);
    }
    auto end = make_end();
    end.noise_flags_json =
        block % 3 == 0 ? R"x(["others used the CPUs meanwhile: 80 % (limit 25 %)"])x" : "[]";
    store.finish_launch(row, end, records);
  }

  [[nodiscard]] std::string notes() const {
    const Reader reader(folder.file("a.sqlite"));
    return join(trust_notes(reader, "run-1", load_figures(reader, run_scope(reader, "run-1"))),
                "\n");
  }

  ScratchFolder folder;
  Store store;
  SyntheticPlan plan;
};

}  // namespace

TEST_CASE("what speaks against a run's figures is said, and nothing is left out") {
  const DriftingRun run(0.05);
  const std::string notes = run.notes();
  CHECK_THAT(notes, ContainsSubstring("noise gate: 3 of 8 launches FLAGGED") &&
                        ContainsSubstring("others used the CPUs meanwhile (3)"));
  CHECK_THAT(notes, ContainsSubstring("warm-up: TOO SHORT in 2 of 16 cells of launches, by up to"));
  CHECK_THAT(notes, ContainsSubstring("independence of launches: FAILS in 1 of 1 group") &&
                        ContainsSubstring("bare-metal"));
  CHECK_THAT(notes, ContainsSubstring("clocks: compared by ping-pong to within 1.5 us"));
  CHECK_THAT(notes, ContainsSubstring("REACHED BY ONLY 0 of 1 group") &&
                        ContainsSubstring("ended by time_budget with up to 9.3 %"));
  const Reader reader(run.folder.file("a.sqlite"));
  CHECK_THAT(render_full_answer(reader, "last"), ContainsSubstring("3 of 8 launches FLAGGED"));
  CHECK_THAT(render_run(reader, "last", OutputFormat::text),
             ContainsSubstring("how far the figures can be trusted"));
  const Table coverage = named_query(reader, "coverage", {});
  CHECK(TableView(coverage).integer(0, "launches") == 8);
  CHECK(TableView(coverage).text(0, "reason") == "3 of 8 launches flagged by the noise gate");
}

TEST_CASE("a run without a drift passes the test of independence") {
  const DriftingRun run(0);
  CHECK_THAT(run.notes(),
             ContainsSubstring("independence of launches: nothing against it in 1 group"));
}

TEST_CASE("a warm-up that nobody could judge is not called long enough") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  const auto launch = [&](int block, int iterations) {
    const auto start = make_start(plan.groups[0].id, block);
    const auto row = store.begin_launch("run-1", start);
    store.finish_launch(row, make_end(),
                        make_records(plan.cells, plan.groups[0].id, start.uuid, 2, iterations,
                                     [](const CellInfo&, int, int) { return 5.0; }));
  };
  const auto notes = [&] {
    const Reader reader(folder.file("a.sqlite"));
    return join(trust_notes(reader, "run-1", load_figures(reader, run_scope(reader, "run-1"))),
                "\n");
  };
  launch(0, 10);
  CHECK_THAT(notes(), ContainsSubstring("warm-up: not judged in 1 of 1 cell of launches (fewer "
                                        "than 20 iterations)"));
  launch(1, 40);
  CHECK_THAT(notes(), ContainsSubstring("warm-up: long enough in all 1 cell of launches that were "
                                        "judged; not judged in 1 of 2"));
}

TEST_CASE("each part can be queried") {
  const DriftingRun run(0.05);
  const Reader reader(run.folder.file("a.sqlite"));
  const auto text = [&](const char* query, const char* column) {
    const Table table = named_query(reader, query, {});
    REQUIRE_FALSE(table.rows.empty());
    return TableView(table).text(0, column);
  };
  CHECK(text("noise", "noise") == "noisy");
  CHECK(text("noise", "flags") == "others used the CPUs meanwhile: 80 % (limit 25 %)");
  CHECK(text("warmup", "warmup") == "now and then too short");
  CHECK(text("independence", "independence") == "FAILS");
  CHECK(text("clocks", "clock") == "ping-pong");
  CHECK(text("skew", "skew_error_us") == "1.5");
  CHECK(text("stopping", "stopped_by") == "time_budget");
}

TEST_CASE("few launches are said to be too few to test") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < 3; ++block)
    store_launch(store, plan, plan.groups[0], block, [](const CellInfo&, int, int) { return 5.0; });
  const Reader reader(folder.file("a.sqlite"));
  const auto notes =
      join(trust_notes(reader, "run-1", load_figures(reader, run_scope(reader, "run-1"))), "\n");
  CHECK_THAT(notes, ContainsSubstring("not tested, it takes 6 launches"));
  const Table table = named_query(reader, "independence", {});
  CHECK(TableView(table).text(0, "independence") == "too few launches to test");
}
