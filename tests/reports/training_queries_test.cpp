#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "reports/reports.hpp"
#include "reports/table_view.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::WithinRel;

TEST_CASE("a foretold training step stands beside the measured one, part by part", "[A-13][G-24]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.predicted_us = 100;
  figures.forward_us = 30;
  figures.backward_us = 50;
  figures.update_us = 5;
  figures.exposed_us = 12;
  figures.details["predicted"] = {{"computing_us", 84}, {"exposed_us", 16}, {"sending_us", 40}};
  store_training(
      store,
      {{{"bsp-a2a", R"({"model":"mlp","batch":"8"})"}, {"dear", R"({"model":"mlp","batch":"8"})"}},
       {98, 130}},
      figures, 3);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "prediction", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 2);
  // The worst first; of three launches the middle one counts, 1 % longer than the first.
  CHECK(rows.text(0, "method") == "dear");
  CHECK_THAT(*rows.real(0, "error"), WithinRel(100 / (130 * 1.01) - 1, 1e-9));
  CHECK_THAT(*rows.real(0, "worst_error"), WithinRel(1 - 100 / (130 * 1.02), 1e-9));
  CHECK(rows.integer(0, "within_bar") == 0);
  CHECK(rows.text(1, "method") == "bsp-a2a");
  CHECK(rows.integer(1, "within_bar") == 1);
  CHECK(rows.real(1, "computing_us") == 85.0);
  CHECK(rows.real(1, "predicted_computing_us") == 84.0);
  CHECK(rows.real(1, "exposed_us") == 12.0);
  CHECK(rows.real(1, "predicted_exposed_us") == 16.0);
  CHECK(rows.real(1, "predicted_sending_us") == 40.0);
}

TEST_CASE("memory of a training method stands beside what it may hold", "[D-03]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.details["memory"] = {{"unit_bytes", 1000},
                               {"held_bytes", 1500},
                               {"limit_bytes", 1000},
                               {"peak_extra_bytes", 1700.0}};
  store_training(store, {{{"dear", R"({"model":"mlp","batch":"8"})"}}, {100}}, figures, 2);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "training_memory", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.text(0, "role") == "worker");
  CHECK(rows.integer(0, "launches") == 2);
  CHECK(rows.real(0, "copies") == 1.5);
  CHECK(rows.integer(0, "within_limit") == 0);
  CHECK(rows.real(0, "peak_extra_bytes") == 1700.0);
}
