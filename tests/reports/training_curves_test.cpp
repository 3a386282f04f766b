// What the steps of a training cell leave beside their times: curves and messages.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reports/reports.hpp"
#include "reports/table_view.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

const std::string kSettings = R"({"model":"mlp","batch":"8"})";

json span(const std::string& name, const char* category, double start_us, double took_us) {
  return {{"name", name}, {"cat", category}, {"ph", "X"},     {"ts", start_us},
          {"pid", 0},     {"tid", 0},        {"dur", took_us}};
}

json message(const std::string& name, double start_us, double took_us, int bytes) {
  json event = span(name, "communication", start_us, took_us);
  event["tid"] = 1;
  event["args"] = {{"bytes", bytes}};
  return event;
}

/// Forward from 1000 to 1030, backward to 1090; a message of the step before, and three of this.
json small_trace() {
  return json::array({span("forward 0", "computation", 1000, 30),
                      span("backward 0", "computation", 1030, 60),
                      message("all-gather 0", 1005, 20, 400), message("reduce 2", 1060, 10, 400),
                      message("reduce 1", 1080, 10, 100), message("reduce 0", 1095, 20, 100)});
}

}  // namespace

TEST_CASE("a curve runs over steps, samples and time, warm-up included", "[A-13][G-24]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.accuracy = 0.75;
  // Two steps of warm-up, 1000 and 900 us, and ten measured ones.
  figures.details["losses"] = {5.0, 4.0, 3.0, 2.9, 2.8, 2.7, 2.6, 2.5, 2.4, 2.3, 2.2, 2.1};
  store_training(store, {{{"bsp-a2a", kSettings}}, {100}}, figures, 3);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "curves", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 12);
  CHECK(rows.text(0, "method") == "bsp-a2a");
  CHECK(rows.integer(0, "block") == 1);  // the median launch
  CHECK(rows.integer(0, "step") == 1);
  CHECK(rows.integer(0, "samples") == 16);
  CHECK(rows.real(0, "loss") == 5.0);
  CHECK(rows.real(0, "trained_us") == 1000.0);
  CHECK_FALSE(rows.real(0, "accuracy"));
  CHECK(rows.integer(11, "samples") == 12 * 16);
  CHECK(rows.real(11, "loss") == 2.1);
  CHECK_THAT(*rows.real(11, "trained_us"), WithinRel(1900 + 10 * 101.0, 1e-9));
  CHECK(rows.real(11, "accuracy") == 0.75);
}

TEST_CASE("epochs start anew: their curve begins behind the warm-up", "[A-12]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.accuracy = 0.9;
  figures.details["losses"] = {5.0, 4.0, 3.0, 2.9, 2.8, 2.7, 2.6, 2.5, 2.4, 2.3, 2.2, 2.1};
  figures.details["epochs"] = 2;
  figures.details["accuracies"] = {{5, 0.6}, {10, 0.9}};
  store_training(store, {{{"dear", kSettings}}, {100}}, figures, 1);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "curves", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 10);
  CHECK(rows.real(0, "loss") == 3.0);
  CHECK(rows.real(0, "trained_us") == 100.0);
  CHECK(rows.real(4, "accuracy") == 0.6);
  CHECK_FALSE(rows.real(5, "accuracy"));
  CHECK(rows.real(9, "accuracy") == 0.9);
}

TEST_CASE("sizes and times of the messages that a method makes", "[D-53]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.details["pieces"] = {{0, 25, 0}, {25, 25, 0}, {50, 100, 0}};
  figures.details["trace"] = small_trace();
  store_training(store, {{{"wfbp-a2a", kSettings}}, {120}}, figures, 1);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "messages", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.integer(0, "messages") == 3);
  CHECK(rows.integer(0, "sent_bytes") == 600);
  CHECK(rows.integer(0, "smallest_bytes") == 100);
  CHECK(rows.integer(0, "median_bytes") == 100);
  CHECK(rows.integer(0, "p75_bytes") == 400);
  CHECK(rows.integer(0, "largest_bytes") == 400);
  CHECK(rows.real(0, "backward_start_us") == 30.0);
  CHECK(rows.real(0, "backward_end_us") == 90.0);
  CHECK(rows.real(0, "first_start_us") == 60.0);
  CHECK(rows.real(0, "last_start_us") == 95.0);
  CHECK(rows.real(0, "median_gap_us") == 15.0);
  CHECK(rows.real(0, "largest_gap_us") == 20.0);
  CHECK_THAT(*rows.real(0, "in_backward"), WithinRel(500.0 / 600, 1e-9));
}

TEST_CASE("an engine's buckets are its messages, though it tells no times", "[D-53]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.details["pieces"] = {{0, 25, 0}, {25, 125, 0}};
  figures.details["engine_buckets"] = {100, 200, 300};
  figures.details["trace"] = json::array({span("forward 0", "computation", 1000, 30)});
  store_training(store, {{{"ddp", kSettings}}, {120}}, figures, 1);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "messages", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.integer(0, "messages") == 3);
  CHECK(rows.integer(0, "median_bytes") == 200);
  CHECK_FALSE(rows.real(0, "first_start_us"));
  CHECK_FALSE(rows.real(0, "largest_gap_us"));
}
