#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>

#include "db/decision_log.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/registry.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string kSettings = R"({"model":"mlp","batch":"8"})";
const std::string kPacked = R"({"model":"mlp","batch":"8","packing":"exponents"})";

/// A launch's records as if its ranks had found this transport.
void find_transport(std::vector<RecordFile>& files, const std::string& transport) {
  for (auto& file : files)
    for (auto& record : file.records)
      if (auto* found = std::get_if<TransportRecord>(&record)) found->transport = transport;
}

}  // namespace

TEST_CASE("every training cell has the taxonomy's six parts and what its label rests on",
          "[D-55][D-56]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.max_difference = 1e-7;
  auto plan = make_plan("trained", {"bare-metal"}, {"training"}, {1, 2, 3, 4});
  const std::vector<std::pair<std::string, std::string>> methods{
      {"bsp-a2a", kSettings}, {"mg-wfbp", kPacked}, {"dear", kSettings}, {"not-ours", kSettings}};
  for (std::size_t i = 0; i < methods.size(); ++i) {
    plan.cells[i].algorithm = methods[i].first;
    plan.cells[i].knobs_json = methods[i].second;
  }
  store.begin_run(plan.run, plan.groups, plan.cells);
  const auto start = make_start(plan.groups[0].id, 0);
  const auto launch = store.begin_launch("trained", start);
  auto files = make_records(plan.cells, plan.groups[0].id, start.uuid, 2, 5,
                            [](const CellInfo&, int, int) { return 10.0; });
  find_transport(files, "tcp");
  for (auto& file : files)
    for (auto& record : file.records)
      if (auto* cell = std::get_if<CellRecord>(&record)) {
        cell->training = figures;
        cell->checked = 100;
      }
  LaunchEnd end = make_end();
  end.regime_id = "abcd";
  end.regime_name = "bare metal";
  end.regime_json = R"({"ingredients":{"intra_link":"none","inter_link":"tcp"}})";
  store.finish_launch(launch, end, files);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "taxonomy", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 4);
  std::map<std::string, std::size_t> row;
  for (std::size_t i = 0; i < rows.size(); ++i) row[rows.text(i, "algorithm")] = i;
  const auto plain = row.at("bsp-a2a");
  CHECK(rows.text(plain, "sync") == "BSP");
  CHECK(rows.text(plain, "compression") == "none");
  CHECK(rows.text(plain, "architecture") == "all-reduce");
  CHECK(rows.text(plain, "scheduling") == "none");
  CHECK(rows.text(plain, "protocol") == "TCP/IP");
  CHECK(rows.text(plain, "topology") == "one host, ranks apart, over tcp");
  CHECK(rows.text(plain, "label") == "lossless");
  CHECK(rows.integer(plain, "checked") == 200);
  CHECK(rows.integer(plain, "wrong") == 0);
  CHECK(rows.real(plain, "max_difference") == 1e-7);
  CHECK(rows.text(row.at("mg-wfbp"), "compression") == "lossless packing");
  CHECK(rows.text(row.at("mg-wfbp"), "scheduling") == "MG-WFBP");
  CHECK(rows.text(row.at("dear"), "sync") == "BSP across the barrier");
  // What a method loses that is not known here is not claimed to be nothing.
  CHECK(rows.text(row.at("not-ours"), "label").empty());
  CHECK(rows.text(row.at("not-ours"), "sync").empty());
}

TEST_CASE("the tuner stands between two levels of the taxonomy", "[D-57]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  store_training(store, {{{"bsp-a2a", kSettings}, {"mg-wfbp", kPacked}}, {100, 90}}, figures, 2);
  DecisionLog log(folder.file("a.sqlite"));
  const auto tuning = log.begin({"trained", "live", "bandit", "", 1, "{}"});
  DecisionInfo choice;
  choice.task_key = "openmpi/ring/training/2^10/r2n1";
  choice.environment = "bare-metal";
  choice.regime = "abcd";
  choice.kind = "final";
  choice.arm = "mg-wfbp";
  choice.guard = "pass";
  choice.state_json = choice.candidates_json = choice.asked_json = "{}";
  log.add(tuning, {choice});
  const Table taxonomy = named_query(Reader(folder.file("a.sqlite")), "taxonomy", {});
  CHECK_THAT(TableView(taxonomy).text(0, "tuner"),
             ContainsSubstring("level 2.5: 1 choice by bandit"));
}
