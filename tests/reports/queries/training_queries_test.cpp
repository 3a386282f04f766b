#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/registry.hpp"
#include "tests/db/synthetic.hpp"
#include "tests/reports/queries/trained_run.hpp"

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
  CHECK(!rows.integer(0, "staging_bytes"));
}

TEST_CASE("a GPU's gradients have one copy in host memory, no more", "[D-03]") {
  for (const int staging : {1000, 1001, 2000}) {
    const ScratchFolder folder;
    Store store(folder.file("a.sqlite"));
    TrainingFigures figures;
    figures.role = "worker";
    figures.details["memory"] = {{"unit_bytes", 1000}, {"held_bytes", 0}, {"limit_bytes", 1000}};
    figures.details["staging_bytes"] = staging;
    store_training(store, {{{"wfbp-ps", R"({"model":"mlp","batch":"8"})"}}, {100}}, figures, 2);
    const Table table = named_query(Reader(folder.file("a.sqlite")), "training_memory", {});
    const TableView rows(table);
    REQUIRE(rows.size() == 1);
    CHECK(rows.integer(0, "staging_bytes") == staging);
    CHECK(rows.integer(0, "within_limit") == (staging == 1000 ? 1 : 0));
  }
}

TEST_CASE("each rank of a method is held against its own limit", "[D-03]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  auto plan = make_plan("trained", {"bare-metal"}, {"training"}, {1024});
  plan.groups[0].architecture = "ps";
  plan.cells[0].algorithm = "wfbp-ps";
  plan.cells[0].knobs_json = R"({"model":"mlp","batch":"8","placement":"colocated"})";
  store.begin_run(plan.run, plan.groups, plan.cells);
  const auto start = make_start(plan.groups[0].id, 0);
  const auto launch = store.begin_launch("trained", start);
  auto files = make_records({plan.cells[0]}, plan.groups[0].id, start.uuid, 2, 10,
                            [](const CellInfo&, int, int) { return 100.0; });
  for (std::size_t rank = 0; rank < files.size(); ++rank) {
    TrainingFigures figures;
    figures.role = "worker";
    // The first rank sums too; the other one holds less than it does, but more than it may.
    figures.details["memory"] = {{"unit_bytes", 1000},
                                 {"held_bytes", rank == 0 ? 2000 : 1500},
                                 {"limit_bytes", rank == 0 ? 4000 : 1000}};
    for (auto& record : files[rank].records)
      if (auto* cell = std::get_if<CellRecord>(&record)) cell->training = figures;
  }
  store.finish_launch(launch, make_end(), files);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "training_memory", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.integer(0, "workers") == 2);
  CHECK(rows.real(0, "copies") == 2);
  CHECK(rows.integer(0, "within_limit") == 0);
}

TEST_CASE("colocated servers are workers where architectures are compared", "[D-03]") {
  CellFigure figure;
  figure.architecture = "ps";
  figure.collective = "training";
  figure.ranks = 4;
  figure.cell_knobs = R"({"model":"mlp","batch":"8","servers":"2"})";
  CHECK(trained_cell(figure).workers == 2);
  figure.cell_knobs = R"({"model":"mlp","batch":"8","servers":"2","placement":"colocated"})";
  CHECK(trained_cell(figure).workers == 4);
}

TEST_CASE("of two launches a training cell shows the mean, as other queries do") {
  // Steps of 100, 101 and 102 us.
  for (const auto& [launches, step_us] : {std::pair{1, 100.0}, {2, 100.5}, {3, 101.0}}) {
    const ScratchFolder folder;
    Store store(folder.file("a.sqlite"));
    TrainingFigures figures;
    figures.role = "worker";
    store_training(store, {{{"bsp-ps", R"({"model":"mlp","batch":"8"})"}}, {100}}, figures,
                   launches);
    const Table table = named_query(Reader(folder.file("a.sqlite")), "training", {});
    const TableView rows(table);
    REQUIRE(rows.size() == 1);
    CHECK(rows.integer(0, "launches") == launches);
    CHECK_THAT(rows.real(0, "step_us").value(), WithinRel(step_us, 1e-9));
  }
}

TEST_CASE("the library that carried gradients stands beside the backend they are stored under") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.details = {{"carried_by", "Gloo 0.5.0"}, {"engine", "c10d"}, {"data_us", 7.5}};
  store_training(store, {{{"bsp-ps", R"({"model":"mlp","batch":"8"})"}}, {100}}, figures, 2);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "training", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.text(0, "carried_by") == "Gloo 0.5.0");
  CHECK(rows.real(0, "data_us") == 7.5);

  Store ddp(folder.file("b.sqlite"));
  figures.details = {{"engine", "c10d"}};
  store_training(ddp, {{{"ddp", R"({"model":"mlp","batch":"8"})"}}, {100}}, figures, 2);
  CHECK(TableView(named_query(Reader(folder.file("b.sqlite")), "training", {}))
            .text(0, "carried_by") == "c10d");
}

TEST_CASE("every figure of a server says which library carried it", "[d-04]") {
  const auto carried = [](const char* method, const char* library, double predicted_us) {
    TrainedCase one{method, "mlp", 8, 2, 100, usual_figures()};
    one.figures.predicted_us = predicted_us;
    one.figures.details["carried_by"] = library;
    one.figures.details["pieces"] = {{0, 256, 0}};
    one.figures.details["predicted"] = {{"computing_us", 84}};
    one.figures.details["memory"] = {
        {"unit_bytes", 1024}, {"held_bytes", 0}, {"limit_bytes", 1024}};
    return one;
  };
  // The server's step is expected to be short and is not.
  TrainedCase coded = carried("bsp-ps", "Open MPI 4.1.4", 40);
  coded.extra = R"(,"compression":"topk")";
  coded.figures.details["compression"] = {
      {"nominal_bytes", 1024}, {"message_bytes", 80}, {"formula_bytes", 80}};
  const TrainedRun run(
      {carried("bsp-ps", "Gloo 0.5.0", 30), carried("bsp-a2a", "MPICH 4.1", 100), coded});
  const std::map<std::string, std::size_t> rows_of{
      {"training", 3},    {"messages", 3},        {"prediction", 3}, {"scaling", 2},
      {"cost_orders", 3}, {"training_memory", 5}, {"compression", 1}};
  for (const auto& [query, count] : rows_of) {
    INFO(query);
    const Table table = run.query(query.c_str());
    const TableView rows(table);
    CHECK(rows.size() == count);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bool is_coded = rows.text(i, "settings").find("topk") != std::string::npos;
      const char* own = rows.text(i, "method") == "bsp-a2a" ? "MPICH 4.1" : "Gloo 0.5.0";
      CHECK(rows.text(i, "carried_by") == (is_coded ? "Open MPI 4.1.4" : own));
    }
  }
  const Table table = run.query("architecture");
  const TableView choice(table);
  REQUIRE(choice.size() == 1);
  CHECK(choice.text(0, "chosen_architecture") == "ps");
  CHECK(choice.text(0, "carried_by") == "Gloo 0.5.0");
  CHECK(choice.text(0, "best_architecture") == "ring");
  CHECK(choice.text(0, "best_carried_by") == "MPICH 4.1");
}

namespace {

struct TrainedMethod {
  std::string architecture;
  std::string method;
  double step_us;
  double predicted_us;
  bool server;  ///< rank 0 computes nothing
};

/// Three launches of each method, two ranks, a group of its own each.
void store_methods(Store& store, const std::vector<TrainedMethod>& methods) {
  const std::vector<std::string> environments(methods.size(), "bare-metal");
  auto plan = make_plan("trained", environments, {"training"}, {1024});
  for (std::size_t i = 0; i < methods.size(); ++i) {
    plan.groups[i].architecture = methods[i].architecture;
    plan.groups[i].id = plan.cells[i].group_id = "group-" + methods[i].method;
    plan.cells[i].id = "cell-" + methods[i].method;
    plan.cells[i].algorithm = methods[i].method;
    plan.cells[i].knobs_json = R"({"model":"mlp","batch":"8"})";
  }
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (std::size_t i = 0; i < methods.size(); ++i) {
    for (int block = 0; block < 3; ++block) {
      const auto start = make_start(plan.groups[i].id, block);
      const auto launch = store.begin_launch("trained", start);
      auto files = make_records({plan.cells[i]}, plan.groups[i].id, start.uuid, 2, 10,
                                [&](const CellInfo&, int, int) { return methods[i].step_us; });
      for (std::size_t rank = 0; rank < files.size(); ++rank) {
        TrainingFigures figures;
        figures.role = methods[i].server && rank == 0 ? "server" : "worker";
        figures.predicted_us = methods[i].predicted_us;
        for (auto& record : files[rank].records)
          if (auto* cell = std::get_if<CellRecord>(&record)) cell->training = figures;
      }
      store.finish_launch(launch, make_end(), files);
    }
  }
}

}  // namespace

TEST_CASE("the architecture is chosen by expectation and held against the best", "[H-23]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  // The baseline is the fastest and no choice; the server's step is short, but one rank less works.
  store_methods(store, {{"ps", "wfbp-ps", 90, 85, true},
                        {"ring", "bsp-a2a", 120, 125, false},
                        {"ring", "dear", 130, 100, false},
                        {"ring", "ddp", 80, 70, false}});
  const Table table = named_query(Reader(folder.file("a.sqlite")), "architecture", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.text(0, "chosen_architecture") == "ring");
  CHECK(rows.text(0, "chosen_method") == "dear");
  CHECK_THAT(*rows.real(0, "expected_samples_per_second"), WithinRel(2 * 8 / 100e-6, 1e-9));
  CHECK_THAT(*rows.real(0, "other_expected"), WithinRel((8 / 85.0) / (16 / 100.0), 1e-9));
  CHECK(rows.text(0, "best_method") == "bsp-a2a");
  CHECK_THAT(*rows.real(0, "lost"), WithinRel(130.0 / 120 - 1, 1e-9));
}

TEST_CASE("what sending takes from computing stands beside what it costs alone", "[H-19]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  const auto points = [](double small, double large) {
    return nlohmann::json::array({{1024, small}, {4096, large}});
  };
  figures.details = {{"cost_us", points(10, 30)},      {"cost_second_us", points(0, 10)},
                     {"cost_busy_us", points(15, 60)}, {"cost_busy_second_us", points(0, 20)},
                     {"cost_lost_us", points(6, 20)},  {"cost_cpu_us", points(3, 8)}};
  // Two methods of one launch share the all-reduce's table; a server's path is its own.
  const std::string settings = R"({"model":"mlp","batch":"8"})";
  store_training(store,
                 {{{"bsp-a2a", settings}, {"mg-wfbp", settings}, {"wfbp-ps", settings}}, {9, 9, 9}},
                 figures, 2);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "interference", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 4);
  CHECK(rows.text(1, "path") == "all-reduce");
  CHECK(rows.integer(1, "size_bytes") == 4096);
  CHECK(rows.integer(1, "launches") == 2);
  CHECK(rows.real(1, "idle_us") == 40.0);
  CHECK(rows.real(1, "busy_us") == 80.0);
  CHECK(rows.real(1, "slowdown") == 2.0);
  CHECK(rows.real(1, "lost_share") == 0.25);
  CHECK(rows.text(2, "path") == "wfbp-ps");
  CHECK_THAT(*rows.real(2, "lost_share"), WithinRel(0.4, 1e-9));
}

TEST_CASE("a large model in fewer than 8 bits is warned of, in 8 it is not", "[F-25]") {
  const auto note_with = [](double message_bytes) {
    const ScratchFolder folder;
    Store store(folder.file("a.sqlite"));
    TrainingFigures figures;
    figures.role = "worker";
    figures.details["compression"] = {{"nominal_bytes", 438e6},
                                      {"message_bytes", message_bytes},
                                      {"formula_bytes", message_bytes},
                                      {"encode_us", 7},
                                      {"decode_us", 3},
                                      {"error_feedback", true}};
    store_training(
        store, {{{"wfbp-a2a", R"({"model":"bert-base","batch":"8","compression":"int8"})"}}, {50}},
        figures, 1);
    const Reader reader(folder.file("a.sqlite"));
    const Table table = named_query(reader, "compression", {});
    return TableView(table).text(0, "note");
  };
  CHECK(note_with(438e6 / 32).find("large model") != std::string::npos);
  CHECK(note_with(438e6 / 4).find("large model") == std::string::npos);
}

TEST_CASE("bytes of a colocated server are compared without what it takes from itself", "[D-90]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.details["compression"] = {{"nominal_bytes", 1000}, {"message_bytes", 50},
                                    {"plain_bytes", 500},    {"formula_bytes", 50},
                                    {"encode_us", 7},        {"decode_us", 3},
                                    {"error_feedback", true}};
  const std::string knobs =
      R"({"model":"mlp","batch":"8","compression":"onebit","placement":"colocated"})";
  store_training(store, {{{"wfbp-ps", knobs}}, {50}}, figures, 2);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "compression", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.integer(0, "nominal_bytes") == 1000);
  CHECK(rows.real(0, "message_bytes") == 50.0);
  CHECK_THAT(*rows.real(0, "smaller"), WithinRel(10.0, 1e-9));
  CHECK(rows.text(0, "note").empty());
}

TEST_CASE("a codec within groups has a row of its own beside that of the way to the server",
          "[D-87][D-90]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  const auto coded = [](double bytes, double encode_us) {
    return nlohmann::json{{"nominal_bytes", 1000},  {"message_bytes", bytes}, {"plain_bytes", 1000},
                          {"formula_bytes", bytes}, {"encode_us", encode_us}, {"decode_us", 3},
                          {"error_feedback", true}};
  };
  figures.details["compression"] = coded(50, 7);
  figures.details["group_compression"] = coded(100, 9);
  const auto knobs = [](const std::string& codecs) {
    return R"({"model":"mlp","batch":"8","synchronisation":"ssp","group_size":"2")" + codecs + "}";
  };
  store_training(store,
                 {{{"bsp-ps", knobs(R"(,"compression":"onebit","group_compression":"topk")")},
                   {"bsp-ps", knobs(R"(,"group_compression":"topk")")}},
                  {50, 60}},
                 figures, 3);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "compression", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 3);
  CHECK(rows.text(0, "level") == "groups to server");
  CHECK(rows.text(0, "compression") == "onebit");
  CHECK(rows.real(0, "message_bytes") == 50.0);
  CHECK(rows.real(0, "encode_us") == 7.0);
  for (const std::size_t within : {std::size_t{1}, std::size_t{2}}) {
    CHECK(rows.text(within, "level") == "within groups");
    CHECK(rows.text(within, "compression") == "topk");
    CHECK(rows.real(within, "message_bytes") == 100.0);
    CHECK_THAT(*rows.real(within, "smaller"), WithinRel(10.0, 1e-9));
    CHECK(rows.real(within, "encode_us") == 9.0);
    CHECK(rows.integer(within, "launches") == 3);
  }
}

TEST_CASE("a codec's round is held against plain steps by the sample, at the same pace",
          "[C-46][D-97][F-10]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.details["compression"] = {{"nominal_bytes", 1000}, {"message_bytes", 80}};
  const auto knobs = [](const std::string& more) {
    return R"({"model":"mlp","batch":"8")" + more + "}";
  };
  store_training(
      store,
      {{{"bsp-a2a", knobs("")},
        {"bsp-a2a", knobs(R"(,"pace":"4")")},
        {"bsp-a2a", knobs(R"(,"compression":"topk","local_steps":"4","synchronisation":"local")")},
        {"bsp-a2a", knobs(R"(,"compression":"topk","pace":"4","epochs":"2")")}},
       {100, 4000, 300, 3000}},
      figures, 3);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "compression", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 2);
  // Four steps in three times as long.
  CHECK_THAT(*rows.real(0, "over_plain"), WithinRel(0.75, 1e-9));
  CHECK_THAT(*rows.real(1, "over_plain"), WithinRel(0.75, 1e-9));
  CHECK(rows.text(0, "synchronisation") == "local");
  CHECK(rows.text(1, "synchronisation") == "bsp");
}

TEST_CASE("encoded gradients stand beside plain ones, and their steps are no best",
          "[C-46][D-80][D-90][D-97]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.predicted_us = 100;
  figures.wire_bytes = 80;
  figures.details["pieces"] = {{0, 200, 0, 60}, {200, 50, 0, 20}};
  figures.details["compression"] = {{"nominal_bytes", 1000}, {"message_bytes", 80},
                                    {"formula_bytes", 80},   {"encode_us", 7},
                                    {"decode_us", 3},        {"error_feedback", true}};
  store_training(store,
                 {{{"bsp-a2a", R"({"model":"mlp","batch":"8"})"},
                   {"bsp-a2a", R"({"model":"mlp","batch":"8","compression":"topk"})"}},
                  {100, 50}},
                 figures, 3);
  const Reader reader(folder.file("a.sqlite"));
  const Table table = named_query(reader, "compression", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.text(0, "level") == "all workers");
  CHECK(rows.text(0, "compression") == "topk");
  CHECK(rows.integer(0, "error_feedback") == 1);
  CHECK(rows.integer(0, "nominal_bytes") == 1000);
  CHECK(rows.real(0, "message_bytes") == 80.0);
  CHECK(rows.real(0, "formula_bytes") == 80.0);
  CHECK_THAT(*rows.real(0, "smaller"), WithinRel(12.5, 1e-9));
  CHECK(rows.real(0, "encode_us") == 7.0);
  CHECK(rows.real(0, "decode_us") == 3.0);
  CHECK(rows.real(0, "coding_exposed_us") == 10.0);  // bsp waits for all of it
  CHECK(rows.text(0, "note").find("OmniReduce") != std::string::npos);
  CHECK(rows.text(0, "note").find("large model") == std::string::npos);
  CHECK_THAT(*rows.real(0, "over_plain"), WithinRel(0.5, 1e-9));
  const Table orders = named_query(reader, "cost_orders", {});
  const TableView costs(orders);
  REQUIRE(costs.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    // 250 parameters: 32 bits each, or of 2.5 kept a value and a place, of two workers.
    const bool plain = costs.text(i, "compression") == "none";
    CHECK(costs.text(i, "published_order") == (plain ? "32 N" : "k n (log N + 32)"));
    const double bytes = plain ? 1000 : 2 * 2.5 * (std::log2(250.0) + 32) / 8;
    CHECK_THAT(*costs.real(i, "order_bytes"), WithinRel(bytes, 1e-6));
    CHECK_THAT(*costs.real(i, "over_order"), WithinRel(80 / bytes, 1e-6));
  }
  const Table sizes = named_query(reader, "messages", {});
  const TableView messages(sizes);
  REQUIRE(messages.size() == 2);
  CHECK(messages.integer(1, "total_bytes") == 80);
  CHECK(messages.integer(1, "nominal_bytes") == 1000);
}

TEST_CASE("a codec that marks values in a shared sample has neither order nor note of pairs") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.details["compression"] = {{"nominal_bytes", 1000}, {"message_bytes", 80}};
  const auto knobs = R"({"model":"mlp","batch":"8","compression":"cocktail"})";
  store_training(store, {{{"bsp-a2a", knobs}}, {100}}, figures, 3);
  const Reader reader(folder.file("a.sqlite"));
  const Table orders = named_query(reader, "cost_orders", {});
  CHECK(TableView(orders).text(0, "published_order").empty());
  const Table coded = named_query(reader, "compression", {});
  CHECK(TableView(coded).text(0, "note").empty());
}

TEST_CASE("scaling tells speed-up and its share of the ranks, with intervals", "[A-28]") {
  std::vector<TrainedCase> cells;
  for (const int ranks : {2, 4}) {
    TrainedCase cell{"bsp-a2a", "mlp"};
    cell.ranks = ranks;
    cell.figures = usual_figures();
    cell.figures.single_us = 90;
    cell.step_us = 100;
    cells.push_back(cell);
  }
  const TrainedRun run(cells, 6);
  const Table table = run.query("scaling");
  const TableView rows(table);
  REQUIRE(rows.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const double ranks = i == 0 ? 2 : 4;
    CHECK(rows.integer(i, "ranks") == static_cast<std::int64_t>(ranks));
    CHECK(rows.integer(i, "nodes") == 1);
    CHECK(rows.integer(i, "launches") == 6);
    // Steps of 100 to 105 us: the median launch takes 102.5.
    CHECK(std::abs(*rows.real(i, "speedup") / (ranks * 90 / 102.5) - 1) < 0.001);
    CHECK(std::abs(*rows.real(i, "efficiency") / (90 / 102.5) - 1) < 0.001);
    CHECK(*rows.real(i, "efficiency_low") < *rows.real(i, "efficiency"));
    CHECK(*rows.real(i, "efficiency_high") > *rows.real(i, "efficiency"));
  }
}

TEST_CASE("time to a target and accuracy stand beside plain SGD's of the same block",
          "[D-98][G-23]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const std::string plain = R"({"model":"mlp","batch":"8","epochs":"4","target":"0.6"})";
  const std::string local =
      R"({"model":"mlp","batch":"8","epochs":"4","target":"0.6","synchronisation":"local","local_steps":"8"})";
  const std::vector<std::vector<double>> trained_us{{1000, 1200, 800}, {500, 300, 400}};
  const std::vector<std::vector<double>> accuracy{{0.62, 0.61, 0.63}, {0.60, 0.62, 0.62}};
  store_training(
      store, {{{"bsp-a2a", plain}, {"bsp-a2a", local}}, {100, 50}},
      [&](std::size_t method, int block) {
        const auto at = static_cast<std::size_t>(block);
        TrainingFigures figures;
        figures.role = "worker";
        figures.accuracy = accuracy[method][at];
        figures.details["accuracies"] = {{100, 0.3}, {200, accuracy[method][at]}};
        figures.details["trained_us"] = trained_us[method][at];
        figures.details["carried_by"] = "Gloo 0.5.0";
        // The last launch of local SGD never got there.
        figures.details["target_reached"] = method == 0 || block < 2;
        return figures;
      },
      3);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "time_to_target", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 2);
  CHECK(rows.text(0, "synchronisation") == "local");
  CHECK(rows.text(0, "carried_by") == "Gloo 0.5.0");
  // The one that missed it is no time until it, and the slowest of the three: 300, 500, never.
  CHECK(rows.real(0, "trained_us") == 500.0);
  CHECK(rows.integer(0, "reached") == 2);
  CHECK_THAT(*rows.real(0, "over_plain"), WithinRel(500.0 / 1000, 1e-9));
  CHECK(rows.integer(1, "reached") == 3);
  CHECK_THAT(*rows.real(0, "over_plain_low"), WithinRel(300.0 / 1200, 1e-9));
  CHECK(!rows.real(0, "over_plain_high"));
  CHECK_THAT(*rows.real(0, "beyond_plain"), WithinRel(-0.01, 1e-6));
  CHECK_THAT(*rows.real(0, "beyond_plain_low"), WithinRel(-0.02, 1e-6));
  CHECK_THAT(*rows.real(0, "beyond_plain_high"), WithinRel(0.01, 1e-6));
  CHECK(rows.real(1, "over_plain") == 1.0);
  CHECK(rows.real(1, "beyond_plain") == 0.0);
}

TEST_CASE("what was not sent, how long rounds became and when workers went over stand in a query",
          "[D-21][D-28][D-34]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const std::string task = R"({"model":"mlp","batch":"8","epochs":"4",)";
  const std::vector<std::pair<std::string, std::string>> cells{
      {"bsp-ps", task + R"("synchronisation":"lag"})"},
      {"bsp-a2a", task + R"("synchronisation":"adacomm","local_steps":"8"})"},
      {"bsp-a2a", task + R"("switch_to":"local","local_steps":"8"})"},
      {"bsp-ps", task + R"("synchronisation":"asp","group_size":"2"})"}};
  store_training(
      store, {cells, {100, 50, 60, 70}},
      [&](std::size_t cell, int) {
        TrainingFigures figures;
        figures.role = "worker";
        figures.details["accuracies"] = {{100, 0.3}};
        figures.details["trained_us"] = 1000 + 10.0 * static_cast<double>(cell);
        figures.details["worker_steps"] = 300;
        if (cell == 0) figures.details["lag"] = {{"sent", 25}, {"steps", 100}};
        if (cell == 1) figures.details["round_steps"] = {8, 4, 2};
        if (cell == 2) figures.details["switched"] = {{"worker_steps", 75}};
        return figures;
      },
      1);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "time_to_target", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto how = rows.text(i, "synchronisation");
    // None of them trains as plain SGD would, so that none is what others are held against.
    CHECK_FALSE(rows.real(i, "over_plain"));
    const std::int64_t in_all = 8 * rows.integer(i, "workers");
    if (how == "lag") CHECK(rows.real(i, "unsent") == 0.75);
    if (how == "adacomm") CHECK(rows.integer(i, "last_round_steps") == 2);
    if (how == "bsp, then local") CHECK(rows.integer(i, "switched_after") == 75);
    const bool differ = how == "adacomm" || how == "bsp, then local";
    CHECK(rows.integer(i, "samples") == (differ ? 300 : 100) * in_all);
    CHECK((how == "lag" || how == "grouped asp" || differ));
  }
  // No bytes were counted, and of rounds of several steps nothing is foretold.
  const Table c2c = named_query(Reader(folder.file("a.sqlite")), "c2c", {});
  const TableView ratios(c2c);
  REQUIRE(ratios.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const bool differ = ratios.text(i, "method") == "bsp-a2a";
    CHECK_FALSE(ratios.real(i, "f_counted"));
    CHECK_FALSE(ratios.real(i, "c2c_measured"));
    CHECK(ratios.real(i, "samples_per_second").has_value() != differ);
    if (differ) CHECK_FALSE(ratios.real(i, "expected_us"));
  }
}
