#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/table_view.hpp"
#include "reports/model/trust.hpp"
#include "reports/page/html_report.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/answer.hpp"
#include "tests/db/synthetic.hpp"
#include "tests/reports/page/page_data.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

using Edit = std::function<void(std::vector<RecordFile>&, LaunchEnd&)>;

/// A run of one group whose launches' records are edited before they are stored.
class EditedRun {
 public:
  EditedRun(const std::vector<std::string>& collectives, const std::vector<std::uint64_t>& sizes,
            int ranks)
      : store(folder.file("a.sqlite")),
        plan(make_plan("run-1", {"bare-metal"}, collectives, sizes, ranks)) {
    store.begin_run(plan.run, plan.groups, plan.cells);
  }

  void launch(int block, const TimeOf& time_us, const Edit& edit = {}) {
    const auto start = make_start(plan.groups[0].id, block);
    const auto row = store.begin_launch("run-1", start);
    auto records = make_records(plan.cells, plan.groups[0].id, start.uuid, plan.groups[0].ranks,
                                iterations, time_us);
    auto end = make_end();
    if (edit) edit(records, end);
    store.finish_launch(row, end, records);
  }

  [[nodiscard]] Reader reader() const { return Reader(folder.file("a.sqlite")); }
  [[nodiscard]] Table query(const char* name) const { return named_query(reader(), name, {}); }
  [[nodiscard]] std::string notes() const {
    const Reader database = reader();
    return join(
        trust_notes(database, "run-1", load_figures(database, run_scope(database, "run-1"))), "\n");
  }

  ScratchFolder folder;
  Store store;
  SyntheticPlan plan;
  int iterations = 20;  ///< of each cell in the next launch
};

template <class Record>
void each(std::vector<RecordFile>& files, const std::function<void(Record&, int rank)>& change) {
  for (std::size_t rank = 0; rank < files.size(); ++rank)
    for (auto& record : files[rank].records)
      if (auto* wanted = std::get_if<Record>(&record)) change(*wanted, static_cast<int>(rank));
}

/// The row of a rank by a measure; fails the test when there is none.
std::size_t row_of(const TableView& rows, const std::string& measure, int rank) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows.text(i, "measure") == measure && rows.integer(i, "rank") == rank) return i;
  FAIL("no row of " << measure << " of rank " << rank);
  return 0;
}

/// All ranks start together but `late`, which comes `late_us` after them; clocks may err by
/// `error_us`.
Edit arrivals(int late, double late_us, double error_us) {
  return [=](std::vector<RecordFile>& files, LaunchEnd&) {
    each<CellRecord>(files, [&](CellRecord& cell, int rank) {
      for (double& start : cell.measured.start_us) start += 100 + (rank == late ? late_us : 0);
    });
    for (std::size_t rank = 0; rank < files.size(); ++rank) {
      ClockRecord clock;
      clock.rank = static_cast<int>(rank);
      clock.shared = error_us == 0;
      clock.error_us = clock.end_error_us = rank == 0 ? 0 : error_us;
      files[rank].records.emplace_back(clock);
    }
  };
}

}  // namespace

TEST_CASE("a rank whose own work takes longer in every launch is a straggler", "[B-30]") {
  EditedRun run({"allreduce"}, {1024, 4096}, 3);
  for (int block = 0; block < 4; ++block)
    run.launch(block, [&](const CellInfo&, int rank, int iteration) {
      return (rank == 2 ? 20.0 : 10.0) * (1 + 0.01 * block + 0.001 * (iteration % 3));
    });
  const Table table = run.query("stragglers");
  const TableView rows(table);
  REQUIRE(rows.size() == 3);  // without compared clocks nothing is said of arrivals
  const auto slow = row_of(rows, "own_work", 2);
  CHECK_THAT(*rows.real(slow, "ratio"), WithinRel(2.0, 0.01));
  CHECK(*rows.real(slow, "ratio_low") > 1.9);
  CHECK(rows.real(slow, "slow_iterations_percent") == 100.0);
  CHECK(rows.integer(slow, "iterations") == 160);
  CHECK(rows.text(slow, "slow_blocks") == "0, 1, 2, 3");
  CHECK(rows.text(slow, "straggler") == "yes");
  CHECK(rows.text(row_of(rows, "own_work", 0), "straggler") == "no");
  CHECK_THAT(run.notes(), ContainsSubstring("stragglers: SLOWER in every launch: rank 2 of "
                                            "bare-metal openmpi ring 3 ranks (own work, x 2.00 "
                                            "in 4 of 4 launches); see `query stragglers`"));
}

TEST_CASE("a rank that is slow in some launches only is a changing straggler", "[B-30]") {
  EditedRun run({"allreduce"}, {1024}, 2);
  for (int block = 0; block < 6; ++block)
    run.launch(block, [&](const CellInfo&, int rank, int) {
      return rank == 1 && block >= 4 ? 30.0 : 10.0 + 0.01 * block;
    });
  const Table table = run.query("stragglers");
  const TableView rows(table);
  const auto slow = row_of(rows, "own_work", 1);
  CHECK(rows.text(slow, "straggler") == "changing");
  CHECK(rows.text(slow, "slow_blocks") == "4, 5");
  CHECK(rows.text(row_of(rows, "own_work", 0), "slow_launches") == "0");
  CHECK_THAT(run.notes(), ContainsSubstring("CHANGING between launches: rank 1 of"));
}

TEST_CASE("one launch is too few to call a rank a straggler, and equal ranks are none", "[B-30]") {
  EditedRun run({"allreduce"}, {1024}, 2);
  const auto equal = [](const CellInfo&, int, int) { return 10.0; };
  run.launch(0, [](const CellInfo&, int rank, int) { return rank == 1 ? 20.0 : 10.0; });
  const Table once = run.query("stragglers");
  CHECK(TableView(once).text(row_of(TableView(once), "own_work", 1), "straggler") == "UNCLEAR");
  CHECK_THAT(run.notes(), ContainsSubstring("stragglers: none found in 1 group; UNCLEAR in 2"));
  EditedRun even({"allreduce"}, {1024}, 2);
  for (int block = 0; block < 3; ++block) even.launch(block, equal);
  const Table table = even.query("stragglers");
  CHECK(TableView(table).text(0, "straggler") == "no");
  CHECK(TableView(table).text(1, "straggler") == "no");
}

TEST_CASE("a rank that comes late is told from its clock, less what the clocks may err by",
          "[B-30]") {
  const auto time = [](const CellInfo&, int, int) { return 10.0; };
  EditedRun run({"broadcast"}, {1024}, 2);
  for (int block = 0; block < 3; ++block) run.launch(block, time, arrivals(1, 5, 0));
  const Table table = run.query("stragglers");
  const TableView rows(table);
  // The root of a broadcast does other work than its receiver: only arrivals are compared.
  REQUIRE(rows.size() == 2);
  const auto late = row_of(rows, "arrival", 1);
  CHECK_THAT(*rows.real(late, "ratio"), WithinRel(1.5, 1e-9));
  CHECK(rows.text(late, "straggler") == "yes");
  CHECK(rows.text(row_of(rows, "arrival", 0), "straggler") == "no");

  EditedRun coarse({"broadcast"}, {1024}, 2);
  for (int block = 0; block < 3; ++block) coarse.launch(block, time, arrivals(1, 5, 6));
  const Table unsure = coarse.query("stragglers");
  const TableView none(unsure);
  CHECK(none.real(row_of(none, "arrival", 1), "ratio") == 1.0);
  CHECK(none.text(row_of(none, "arrival", 1), "straggler") == "no");
}

TEST_CASE("a staged path is inferred from the copies' share, and only where it is sure", "[B-25]") {
  const auto copies = [](double share) {
    return [share](std::vector<RecordFile>& files, LaunchEnd&) {
      each<CellRecord>(files, [&](CellRecord& cell, int) {
        for (std::size_t i = 0; i < cell.measured.total_us.size(); ++i)
          cell.measured.h2d_us[i] = cell.measured.total_us[i] * share;
      });
    };
  };
  const auto path = [&](const std::vector<double>& shares) {
    EditedRun run({"allreduce"}, {1024}, 2);
    for (std::size_t block = 0; block < shares.size(); ++block)
      run.launch(
          static_cast<int>(block), [](const CellInfo&, int, int) { return 10.0; },
          copies(shares[block]));
    const Table table = run.query("copy_share");
    return TableView(table).text(0, "path");
  };
  CHECK(path({0.24, 0.25, 0.26}) == "staged (inferred)");
  CHECK(path({0.020, 0.021, 0.022}) == "undetermined");
  CHECK(path({0.05, 0.10, 0.20}) == "UNCLEAR");
  CHECK(path({0.25}) == "UNCLEAR");
  CHECK_THAT(query_named("copy_share").method,
             ContainsSubstring("inferred") && ContainsSubstring("above 10 %"));
}

TEST_CASE("bandwidth is set against the rate of the link that carried it", "[G-13]") {
  const auto over = [](const char* transport, const char* regime) {
    EditedRun run({"allreduce"}, {1024, 1 << 20}, 2);
    for (int block = 0; block < 3; ++block)
      run.launch(
          block,
          [](const CellInfo& cell, int, int) { return cell.size_bytes == 1024 ? 10.0 : 100.0; },
          [&](std::vector<RecordFile>& files, LaunchEnd& end) {
            each<TransportRecord>(files,
                                  [&](TransportRecord& used, int) { used.transport = transport; });
            end.regime_json = regime;
          });
    return run.query("line_rate");
  };
  const Table apart =
      over("tcp", R"({"ingredients":{"inter_tier":"100GbE","intra_link":"none","apart":["net"]}})");
  const TableView rows(apart);
  REQUIRE(rows.size() == 2);
  CHECK(rows.integer(0, "size_bytes") == 1024);
  CHECK(rows.real(0, "line_rate_bytes_per_s") == 12.5e9);
  CHECK(rows.text(0, "line_rate_of") == "link tier 100GbE");
  CHECK_THAT(*rows.real(0, "of_line_rate_percent"), WithinRel(100 * 1024 / 10e-6 / 12.5e9, 1e-9));
  CHECK_THAT(*rows.real(1, "of_line_rate_percent"),
             WithinRel(100 * 1048576 / 100e-6 / 12.5e9, 1e-9));
  CHECK(rows.integer(0, "best_size_bytes") == (1 << 20));
  CHECK_THAT(*rows.real(0, "gap_to_best"), WithinRel(102.4, 1e-9));
  CHECK_THAT(*rows.real(0, "gap_to_best_low"), WithinRel(102.4, 1e-9));
  CHECK(rows.real(1, "of_best_size_percent") == 100.0);
  // In one network namespace TCP does not leave the machine, and a veth has no rate of its own.
  for (const char* regime : {R"({"ingredients":{"inter_tier":"100GbE","apart":[]}})",
                             R"({"ingredients":{"inter_tier":"virtual","apart":["net"]}})", "{}"}) {
    const Table unknown = over("tcp", regime);
    CHECK_FALSE(TableView(unknown).real(0, "line_rate_bytes_per_s").has_value());
    CHECK(TableView(unknown).real(0, "of_best_size_percent").has_value());
  }
}

TEST_CASE("a bus bandwidth above the wire's is told with why, as of sums in a switch", "[G-13]") {
  const auto why = [](const char* algorithm) {
    EditedRun run({"allreduce"}, {1024, 1 << 20}, 2);
    for (int block = 0; block < 3; ++block)
      run.launch(
          block, [](const CellInfo&, int, int) { return 10.0; },
          [&](std::vector<RecordFile>& files, LaunchEnd& end) {
            each<TransportRecord>(files,
                                  [](TransportRecord& used, int) { used.transport = "net"; });
            each<CellRecord>(files, [&](CellRecord& cell, int) { cell.algorithm = algorithm; });
            end.regime_json = R"({"ingredients":{"inter_tier":"100GbE","apart":["net"]}})";
          });
    const Table table = run.query("line_rate");
    const TableView rows(table);
    CHECK(rows.text(0, "above_line_rate").empty());
    CHECK(rows.real(1, "of_line_rate_percent") > 100.0);
    return rows.text(1, "above_line_rate");
  };
  CHECK_THAT(why("nvls/simple"), ContainsSubstring("the switch sums"));
  CHECK_THAT(why("ring"), ContainsSubstring("took another way"));
}

TEST_CASE("the interconnect is flat, steep or unknown", "[B-29]") {
  const auto shape = [](const char* intra, const char* tier, int nvlinks) {
    EditedRun run({"allreduce"}, {1024}, 2);
    run.launch(
        0, [](const CellInfo&, int, int) { return 10.0; },
        [&](std::vector<RecordFile>& files, LaunchEnd& end) {
          each<FactsRecord>(files, [&](FactsRecord& own, int) {
            nlohmann::json device{{"nvlinks_active", nvlinks}, {"nvlink_mbyte_per_s", 25000}};
            own.facts["gpu"]["nvml"]["devices"].push_back(std::move(device));
          });
          nlohmann::json regime;
          regime["ingredients"] = {{"intra_link", intra}, {"inter_tier", tier}};
          end.regime_json = regime.dump();
        });
    const Table table = run.query("interconnect");
    REQUIRE(table.rows.size() == 1);
    return TableView(table).text(0, "interconnect");
  };
  CHECK(shape("nvlink", "400Gb/s", 18) == "steep");
  CHECK(shape("nvlink", "400Gb/s", 2) == "flat");
  CHECK(shape("nvlink", "virtual", 18) == "unknown");
  CHECK(shape("shm", "400Gb/s", 18) == "unknown");
}

TEST_CASE("skew is the median over launches, which a disturbed one does not move") {
  EditedRun run({"allreduce"}, {1024}, 2);
  const std::vector<double> late_us{40, 50, 45, 3000};
  for (std::size_t block = 0; block < late_us.size(); ++block)
    run.launch(
        static_cast<int>(block), [](const CellInfo&, int, int) { return 100.0; },
        arrivals(1, late_us[block], 0));
  const Table table = run.query("skew");
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.integer(0, "launches") == 4);
  CHECK_THAT(*rows.real(0, "skew_us"), WithinRel(47.5, 1e-9));
  CHECK_THAT(*rows.real(0, "share_of_time"), WithinRel(0.475, 1e-9));
  CHECK_THAT(*rows.real(0, "skew_max_us"), WithinRel(3000, 1e-9));
  CHECK_THAT(run.notes(), ContainsSubstring("ranks begin 47.5 us apart in half of the cells of "
                                            "launches, 3000.0 us in the worst; see `query skew`"));
}

TEST_CASE("what passed an interface is summed over a cell's launches, by rank", "[H-13]") {
  EditedRun run({"allreduce"}, {1024, 4096}, 2);
  const auto time = [](const CellInfo&, int, int) { return 100.0; };
  for (int block = 0; block < 2; ++block)
    run.launch(block, time, [](std::vector<RecordFile>& files, LaunchEnd&) {
      std::string cell;
      each<CellRecord>(files, [&](CellRecord& one, int) { cell = one.cell_id; });
      each<TransportRecord>(files, [&](TransportRecord& used, int rank) {
        used.details["cells"] = {{cell,
                                  {{"tcp_bytes", 900},
                                   {"network",
                                    {{"eth0.1",
                                      {{"rx_bytes", 1000 + rank},
                                       {"rx_packets", 2},
                                       {"rx_drops", 1},
                                       {"rx_errors", 0},
                                       {"tx_bytes", 2000},
                                       {"tx_packets", 3},
                                       {"tx_drops", 2},
                                       {"tx_errors", 4}}}}}}}};
      });
    });
  const Table table = run.query("interfaces");
  const TableView rows(table);
  REQUIRE(rows.size() == 2);
  CHECK(rows.text(0, "interface") == "eth0.1");
  CHECK(rows.integer(1, "rank") == 1);
  CHECK(rows.integer(1, "launches") == 2);
  CHECK(rows.integer(1, "rx_bytes") == 2002);
  CHECK(rows.integer(1, "tx_bytes") == 4000);
  CHECK(rows.integer(1, "tx_packets") == 6);
  CHECK(rows.integer(1, "drops") == 6);
  CHECK(rows.integer(1, "errors") == 8);
  CHECK(rows.integer(1, "tcp_bytes") == 1800);
  CHECK_FALSE(rows.real(1, "plan_bytes"));
}

TEST_CASE("slow calls are told by percentiles that launches are long enough for", "[H-02]") {
  EditedRun run({"allreduce"}, {1024}, 2);
  // 1 to 20, and in a later launch twice that: percentiles lie between two of them.
  for (int block = 0; block < 2; ++block)
    run.launch(block, [&](const CellInfo&, int, int iteration) {
      return (block + 1) * (iteration + 1.0);
    });
  const Table table = run.query("tails");
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.integer(0, "launches") == 2);
  CHECK(rows.integer(0, "iterations") == 20);
  CHECK_THAT(*rows.real(0, "median_us"), WithinRel(1.5 * 10.5, 1e-9));
  CHECK_THAT(*rows.real(0, "p95_us"), WithinRel(1.5 * 19.05, 1e-9));
  CHECK(rows.integer(0, "p95_launches") == 2);
  CHECK_FALSE(rows.real(0, "p99_us"));
  CHECK(rows.integer(0, "p99_launches") == 0);
  CHECK_THAT(*rows.real(0, "max_us"), WithinRel(30, 1e-9));
  CHECK_THAT(*rows.real(0, "worst_us"), WithinRel(40, 1e-9));
  CHECK_THAT(*rows.real(0, "p95_over_median"), WithinRel(19.05 / 10.5, 1e-9));
  run.iterations = 100;
  run.launch(2, [](const CellInfo&, int, int iteration) { return iteration + 1.0; });
  const Table longer = run.query("tails");
  const TableView then(longer);
  CHECK(then.integer(0, "p95_launches") == 3);
  CHECK(then.integer(0, "p99_launches") == 1);
  CHECK_THAT(*then.real(0, "p99_us"), WithinRel(99.01, 1e-9));
  // Of three launches the middle one: 10.5, 21 and 50.5; 19.05, 38.1 and 95.05.
  CHECK_THAT(*then.real(0, "median_us"), WithinRel(21, 1e-9));
  CHECK_THAT(*then.real(0, "p95_us"), WithinRel(38.1, 1e-9));
}

TEST_CASE("results that nothing verified are told by the run's notes and to the page") {
  EditedRun run({"allreduce"}, {1024, 4096}, 2);
  const auto time = [](const CellInfo&, int, int) { return 100.0; };
  run.launch(0, time);
  CHECK_THAT(run.notes(), !ContainsSubstring("VERIFIED"));
  CHECK(data_of(render_report_html(run.reader(), "run-1"))["sections"]["coverage"]["unverified"] ==
        0);
  run.launch(1, time, [](std::vector<RecordFile>& files, LaunchEnd&) {
    each<CellRecord>(files, [](CellRecord& cell, int) { cell.checked = 0; });
  });
  CHECK_THAT(run.notes(), ContainsSubstring("results: NOT VERIFIED in 2 of 4 cells of launches"));
  const auto page = data_of(render_report_html(run.reader(), "run-1"))["sections"]["coverage"];
  CHECK(page["unverified"] == 2);
  CHECK(page["measurements"] == 4);
}
