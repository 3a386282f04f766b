#include "reports/model/c2c.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>

#include "reports/model/table_view.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/answer.hpp"
#include "reports/render/report.hpp"
#include "tests/reports/queries/trained_run.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

TEST_CASE("C2C turns what a worker computes and a link carries into a ratio of times",
          "[E-186][E-188][G-24]") {
  const TrainedRun run({{"bsp-a2a", "mlp", 8, 2, 100, usual_figures()},
                        {"mg-wfbp", "mlp", 8, 2, 64, usual_figures()}});
  const Table table = run.query("c2c");
  const TableView rows(table);
  REQUIRE(rows.size() == 2);
  const std::size_t bsp = rows.text(0, "method") == "bsp-a2a" ? 0 : 1;
  // f(N) = C2C M I; F = M I D / T_comp; B = f / beta; T_comm = D b beta.
  CHECK_THAT(*rows.real(bsp, "f_formula"), WithinRel(1.0, 1e-9));
  CHECK_THAT(*rows.real(bsp, "f_counted"), WithinRel(1.1, 1e-9));
  CHECK_THAT(*rows.real(bsp, "worker_flop_per_second"), WithinRel(8 * 100 * 256 / 60e-6, 1e-9));
  CHECK_THAT(*rows.real(bsp, "alpha_us"), WithinRel(5.0, 1e-6));
  CHECK_THAT(*rows.real(bsp, "link_bytes_per_s"), WithinRel(1 / 0.01e-6, 1e-6));
  CHECK(rows.text(bsp, "fitted_from") == "cost table");
  CHECK_THAT(*rows.real(bsp, "ratio_predicted"), WithinRel(10.24 / 60, 1e-6));
  // No scheduling: one after the other. Else the longer, which is the computation.
  CHECK_THAT(*rows.real(bsp, "expected_us"), WithinRel(60 + 2 * 5 + 10.24, 1e-6));
  CHECK_THAT(*rows.real(1 - bsp, "expected_us"), WithinRel(60.0, 1e-9));
  CHECK_THAT(*rows.real(1 - bsp, "gap_percent"), WithinRel(100 * (60 / (64 * 1.01) - 1), 1e-6));
  CHECK_THAT(*rows.real(bsp, "expected_samples_per_second"), WithinRel(16 / 80.24e-6, 1e-6));
}

TEST_CASE("f(N) is fitted over ranks from what a byte costs, on the formula's scale", "[E-187]") {
  auto two = usual_figures();
  auto four = usual_figures();
  four.c2c_predicted = 1.5 / (8 * 100);
  four.details["cost_us"] = {{100, 5 + 100 * 0.02}, {1000, 5 + 1000 * 0.02}};
  const TrainedRun run({{"wfbp-a2a", "mlp", 8, 2, 100, two},
                        {"wfbp-a2a", "mlp", 8, 4, 100, four},
                        {"bsp-a2a", "mlp", 8, 2, 100, two}});
  const Table table = run.query("c2c");
  const TableView rows(table);
  std::map<std::string, std::optional<double>> fitted;
  for (std::size_t i = 0; i < rows.size(); ++i)
    fitted[rows.text(i, "method") + " " + rows.text(i, "workers")] = rows.real(i, "f_fitted");
  CHECK_THAT(*fitted.at("wfbp-a2a 2"), WithinRel(1.0, 1e-6));
  // The formula says 1.5; a byte costs twice as much.
  CHECK_THAT(*fitted.at("wfbp-a2a 4"), WithinRel(2.0, 1e-6));
  CHECK_FALSE(fitted.at("bsp-a2a 2"));
}

TEST_CASE("without a cost table the same run's micro-benchmark is fitted", "[E-187]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  auto figures = usual_figures();
  figures.details.erase("cost_us");
  auto plan = make_plan("mixed", {"bare-metal"}, {"allreduce"}, {1000, 2000, 1024});
  plan.cells[2].collective = "training";
  plan.cells[2].algorithm = "bsp-a2a";
  plan.cells[2].knobs_json = R"({"model":"mlp","batch":"8"})";
  store.begin_run(plan.run, plan.groups, plan.cells);
  const auto start = make_start(plan.groups[0].id, 0);
  const auto launch = store.begin_launch("mixed", start);
  auto files = make_records(
      plan.cells, plan.groups[0].id, start.uuid, 2, 10, [](const CellInfo& cell, int, int) {
        return cell.collective == "training" ? 100.0
                                             : 7 + 0.02 * static_cast<double>(cell.size_bytes);
      });
  for (auto& file : files)
    for (auto& record : file.records)
      if (auto* cell = std::get_if<CellRecord>(&record);
          cell != nullptr && cell->cell_id == plan.cells[2].id)
        cell->training = figures;
  store.finish_launch(launch, make_end(), files);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "c2c", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.text(0, "fitted_from") == "micro-benchmark");
  CHECK_THAT(*rows.real(0, "alpha_us"), WithinRel(7.0, 1e-6));
}

TEST_CASE(
    "a workload whose best method communicates longer than it computes is flagged with advice",
    "[E-147][G-17]") {
  auto slow_link = usual_figures();
  slow_link.details["cost_us"] = {{100, 105}, {1000, 1005}};
  const TrainedRun run({{"bsp-a2a", "mlp", 8, 2, 1200, slow_link},
                        {"mg-wfbp", "mlp", 8, 2, 1100, slow_link},
                        {"bsp-a2a", "cnn", 8, 2, 66, usual_figures()}});
  const Table table = run.query("c2c");
  const TableView rows(table);
  for (std::size_t i = 0; i < rows.size(); ++i)
    CHECK(rows.text(i, "flag") ==
          (rows.text(i, "method") == "mg-wfbp" ? "lossless_saturated" : ""));
  // The user is told without asking for the query, and by the list of flags.
  const std::string answer = render_full_answer(Reader(run.file()), "last");
  CHECK_THAT(answer, ContainsSubstring("lossless_saturated: bare-metal, mlp, batch 8, 2 workers") &&
                         ContainsSubstring("communication take 17 times the computation") &&
                         ContainsSubstring("send less (a lossy method"));
  CHECK_THAT(render_report_markdown(Reader(run.file()), "last"),
             ContainsSubstring("## Where only sending less helps"));
  const Table flags = run.query("flags");
  REQUIRE(flags.rows.size() == 1);
  CHECK(TableView(flags).text(0, "flag") == "lossless_saturated");
  CHECK(TableView(flags).text(0, "subject") == "openmpi/mlp/batch 8/2 workers");
}

TEST_CASE("nothing is flagged where communication hides behind computation", "[E-147]") {
  const TrainedRun run({{"bsp-a2a", "mlp", 8, 2, 90, usual_figures()},
                        {"mg-wfbp", "mlp", 8, 2, 66, usual_figures()}});
  CHECK(run.query("flags").rows.empty());
  CHECK(render_full_answer(Reader(run.file()), "last").find("lossless_saturated") ==
        std::string::npos);
}
