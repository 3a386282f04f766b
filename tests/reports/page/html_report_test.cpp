#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/json.hpp"
#include "db/decision_log.hpp"
#include "reports/model/table_view.hpp"
#include "reports/page/html_report.hpp"
#include "reports/page/section.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/report.hpp"
#include "tests/db/synthetic.hpp"
#include "tests/reports/page/page_data.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

constexpr const char* kHostile = "</script><script>alert(1)</script><!--";

/// Bare metal takes 10, 11, 12 us in blocks 0, 1, 2 and cross-docker twice that; singularity is
/// planned and not measured.
std::string planted_page(const ScratchFolder& folder) {
  Store store(folder.file("page.sqlite"));
  auto plan =
      make_plan("page", {"bare-metal", "cross-docker", "singularity"}, {"allreduce"}, {1024, 4096});
  plan.run.name = kHostile;
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < 3; ++block) {
    for (const auto g : {0U, 1U}) {
      store_launch(store, plan, plan.groups[g], block, [&](const CellInfo&, int, int) {
        return (g == 0 ? 1.0 : 2.0) * (10.0 + block);
      });
    }
  }
  store.mark_unsupported(plan.run.id, plan.groups[2].id, "apptainer is not installed");
  return render_report_html(Reader(folder.file("page.sqlite")), "last");
}

/// A database with one cell measured once: something for a page to be about.
struct OneLaunch {
  ScratchFolder folder;
  std::string path = folder.file("page.sqlite");

  OneLaunch() {
    Store store(path);
    const auto plan = make_plan("page", {"bare-metal"}, {"allreduce"}, {1024});
    store.begin_run(plan.run, plan.groups, plan.cells);
    store_launch(store, plan, plan.groups[0], 0, [](const CellInfo&, int, int) { return 10.0; });
  }
};

}  // namespace

TEST_CASE("the page's data are the medians, intervals and ratios of the cells") {
  const ScratchFolder folder;
  const json data = data_of(planted_page(folder));
  const json& cells = data.at("cells");
  const json& columns = cells.at("columns");
  REQUIRE(columns.at("median").size() == 4);
  CHECK(cells.at("environments") == json{"bare-metal", "cross-docker"});
  std::size_t compared = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const bool cross =
        cells["environments"][columns["environment"][i].get<std::size_t>()] == "cross-docker";
    CHECK(columns["median"][i] == (cross ? 22.0 : 11.0));
    CHECK(columns["launches"][i].size() == 3);
    CHECK(columns["low"][i] < columns["median"][i]);
    CHECK(columns["high"][i] > columns["median"][i]);
    CHECK(columns["ratio"][i].is_null() != cross);
    if (!cross) continue;
    ++compared;
    CHECK_THAT(columns["ratio"][i].get<double>(), WithinRel(2.0, 1e-3));
    CHECK(cells["verdicts"][columns["verdict"][i].get<std::size_t>()] == "SLOWER");
  }
  CHECK(compared == 2);
  CHECK_THAT(cells["operations"][0]["method"].get<std::string>(), ContainsSubstring("3 launches"));
}

TEST_CASE("a cell has one verdict, on the page and in the query") {
  const ScratchFolder folder;
  Store store(folder.file("page.sqlite"));
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t i = 1; i <= 31; ++i) sizes.push_back(1024 * i);
  const auto plan = make_plan("page", {"bare-metal", "cross-docker"}, {"allreduce"}, sizes);
  store.begin_run(plan.run, plan.groups, plan.cells);
  constexpr std::array kBase{100.0, 101.0, 99.0, 100.0, 102.0};
  // Slower when judged alone; among 31 cells one such is to be expected by chance.
  constexpr std::array kNearly{104.2, 105.8, 103.4, 105.1, 104.9};
  for (std::size_t block = 0; block < kBase.size(); ++block) {
    for (const auto& group : plan.groups) {
      const bool cross = group.environment == "cross-docker";
      store_launch(store, plan, group, static_cast<int>(block),
                   [&](const CellInfo& cell, int, int) {
                     return (cross && cell.size_bytes == 1024 ? kNearly : kBase).at(block);
                   });
    }
  }
  store.end_run("page", "complete");
  const Reader reader(folder.file("page.sqlite"));
  const Table overhead = named_query(reader, "overhead", {});
  const TableView query(overhead);
  const json cells = data_of(render_report_html(reader, "last")).at("cells");
  const json& columns = cells.at("columns");
  std::size_t row = 0;
  for (std::size_t i = 0; i < columns.at("verdict").size(); ++i) {
    if (columns["verdict"][i].is_null()) continue;
    REQUIRE(row < query.size());
    CHECK(cells["verdicts"][columns["verdict"][i].get<std::size_t>()] ==
          query.text(row, "verdict"));
    ++row;
  }
  CHECK(row == 31);
  REQUIRE(query.integer(0, "size_bytes") == 1024);
  CHECK(*query.real(0, "ratio_low") > 1.02);
  CHECK(query.text(0, "verdict") == "UNCLEAR");
  CHECK(query.text(1, "verdict") == "SAME");
}

TEST_CASE("backends on the GPU's memory share their settings, asked for or not") {
  const ScratchFolder folder;
  Store store(folder.file("page.sqlite"));
  auto plan = make_plan("page", {"bare-metal", "cross-docker"}, {"allreduce"}, {1024});
  plan.groups[0].backend = "nccl";
  plan.groups[1].backend = "gloo";
  plan.cells[1].knobs_json = R"({"memory":"device"})";
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (const auto& group : plan.groups)
    store_launch(store, plan, group, 0, [](const CellInfo&, int, int) { return 10.0; });
  const json cells =
      data_of(render_report_html(Reader(folder.file("page.sqlite")), "last")).at("cells");
  CHECK(cells.at("backends").size() == 2);
  CHECK(cells.at("settings") == json{"memory=device"});
}

TEST_CASE("the page says what is missing and where its figures come from") {
  const ScratchFolder folder;
  const json sections = data_of(planted_page(folder)).at("sections");
  const json& missing = sections.at("coverage").at("missing");
  REQUIRE(missing.size() == 1);
  CHECK(missing[0]["cells"] == 2);
  CHECK(missing[0]["status"] == "unsupported");
  CHECK(missing[0]["reason"] == "apptainer is not installed");
  CHECK(missing[0]["environments"] == "singularity");
  const std::string trust = sections.at("coverage").at("trust").dump();
  CHECK_THAT(trust, ContainsSubstring("independence of launches: not tested") &&
                        ContainsSubstring("warm-up: not judged in 12 of 12") &&
                        ContainsSubstring("noise gate: no launch was judged"));
  CHECK(sections["provenance"]["launches"]["ok"] == 6);
  CHECK(sections["provenance"]["run"]["host"]["kernel"] == "6.1");
  CHECK(sections["provenance"]["groups"][0]["command"] == "mpirun -np 2");
  CHECK(sections["regimes"]["transports"][0]["transport"] == "cma");
  CHECK(sections["reference"]["published"].is_array());
}

TEST_CASE("ranks that share a core are a cause on the page") {
  const ScratchFolder folder;
  {
    Store store(folder.file("page.sqlite"));
    const auto plan = make_plan("page", {"bare-metal"}, {"allreduce"}, {1024});
    store.begin_run(plan.run, plan.groups, plan.cells);
    const auto start = make_start(plan.groups[0].id, 0);
    const auto launch = store.begin_launch("page", start);
    auto files = make_records(plan.cells, plan.groups[0].id, start.uuid, 2, 10,
                              [](const CellInfo&, int, int) { return 10.0; });
    for (auto& file : files)
      for (auto& record : file.records)
        if (auto* facts = std::get_if<FactsRecord>(&record)) {
          facts->facts["process"]["affinity"] = json::array({0});
          facts->facts["cpu"]["core_cpus"] = json::array({{0}, {1}});
        }
    store.finish_launch(launch, make_end(), files);
  }
  const auto page = data_of(render_report_html(Reader(folder.file("page.sqlite")), "last"));
  const json& regimes = page.at("sections").at("regimes").at("regimes");
  REQUIRE(regimes.size() == 1);
  CHECK(regimes[0]["causes"] ==
        json::array({"ranks share cores: ranks 0-1 on CPU 0; 1 of 2 ranks can have a core of their "
                     "own"}));
}

TEST_CASE("the page asks nobody for anything and trusts no name") {
  const ScratchFolder folder;
  const std::string page = planted_page(folder);
  CHECK(page.find(kHostile) == std::string::npos);
  CHECK(page.find(" src=") == std::string::npos);
  CHECK(page.find("@import") == std::string::npos);
  CHECK(page.find("{{") == std::string::npos);
  CHECK_THAT(page, ContainsSubstring("default-src 'none'"));
  CHECK_THAT(page, ContainsSubstring("Copyright"));
  CHECK(page.size() < 300 * 1024);
}

TEST_CASE("every section has a script that registers it") {
  for (const auto& section : page_sections()) {
    INFO(section.id);
    CHECK_THAT(std::string(section.script),
               ContainsSubstring("id: \"" + std::string(section.id) + "\""));
  }
}

TEST_CASE("the page's curves are fitted by a start-up time and a bandwidth") {
  const ScratchFolder folder;
  Store store(folder.file("page.sqlite"));
  const auto plan =
      make_plan("page", {"bare-metal"}, {"allreduce"}, {1000, 10000, 100000, 1000000});
  store.begin_run(plan.run, plan.groups, plan.cells);
  store_launch(store, plan, plan.groups[0], 0, [](const CellInfo& cell, int, int) {
    return 10.0 + static_cast<double>(cell.size_bytes) / 1000.0;
  });
  const json data = data_of(render_report_html(Reader(folder.file("page.sqlite")), "last"));
  const json& fits = data.at("sections").at("latency").at("fits");
  REQUIRE(fits.size() == 1);
  REQUIRE(fits[0]["pieces"].size() == 1);
  CHECK(data["cells"]["columns"]["size"][fits[0]["cell"].get<std::size_t>()] == 1000);
  CHECK_THAT(fits[0]["pieces"][0]["alpha_us"].get<double>(), WithinRel(10.0, 1e-2));
  CHECK_THAT(fits[0]["pieces"][0]["bytes_per_s"].get<double>(), WithinRel(1e9, 1e-2));
  CHECK(fits[0]["pieces"][0]["alpha_low_us"].is_null());
  CHECK(fits[0]["pieces"][0]["error"].is_number());
  for (const int block : {1, 2})
    store_launch(store, plan, plan.groups[0], block, [&](const CellInfo& cell, int, int) {
      return (1 + 0.01 * block) * (10.0 + static_cast<double>(cell.size_bytes) / 1000.0);
    });
  const json more = data_of(render_report_html(Reader(folder.file("page.sqlite")), "last"));
  const json piece = more.at("sections").at("latency").at("fits")[0]["pieces"][0];
  CHECK(piece["blocks"] == 3);
  CHECK(piece["alpha_low_us"] < piece["alpha_us"]);
  CHECK(piece["high_bytes_per_s"] > piece["bytes_per_s"]);
}

TEST_CASE("the page has the decisions of a tuned run, and no section for them elsewhere") {
  const OneLaunch run;
  const auto& path = run.path;
  const auto section = [&] {
    return data_of(render_report_html(Reader(path), "last")).at("sections").at("decisions");
  };
  CHECK(section().is_null());
  DecisionLog log(path);
  const auto tuning = log.begin({"page", "live", "bandit", "", 1, "{}"});
  std::vector<DecisionInfo> decisions;
  for (int step = 0; step < 3; ++step) {
    DecisionInfo row;
    row.task_key = "openmpi/ring/allreduce/2^10/r2n1";
    row.environment = "bare-metal";
    row.regime = "abcd";
    row.step = step;
    row.kind = step == 0 ? "reference" : step == 1 ? "explore" : "final";
    row.arm = step == 0 ? "default" : "ring";
    row.candidates_json = row.asked_json = row.state_json = "{}";
    row.time_us = step == 0 ? 10.0 : 5.0;
    row.reference_us = 10.0;
    decisions.push_back(row);
  }
  log.add(tuning, decisions);
  const json own = section();
  CHECK(own["steps"].size() == 3);
  REQUIRE(own["choices"].size() == 1);
  CHECK(own["choices"][0]["arm"] == "ring");
  CHECK(own["choices"][0]["time_us"] == 5.0);
  REQUIRE(own["regret"].size() == 2);
  CHECK(own["regret"][0]["mean_regret_percent"] == 100.0);
  CHECK(own["regret"][1]["mean_regret_percent"] == 0.0);
  CHECK(own["policy"].is_null());
}

TEST_CASE("the page tells how the policy of a tuned run was trained") {
  const OneLaunch run;
  const auto& path = run.path;
  DecisionLog log(path);
  const json options{{"training", {{"seed", 2}, {"curves", {{"1", {{1152, -1.25}}}}}}}};
  const auto tuning = log.begin({"page", "live", "ppo", "abcd", 1, options.dump()});
  DecisionInfo row;
  row.task_key = "openmpi/ring/allreduce/2^10/r2n1";
  row.environment = "bare-metal";
  row.regime = "abcd";
  row.kind = "reference";
  row.arm = "library";
  row.candidates_json = row.asked_json = row.state_json = "{}";
  row.time_us = 10.0;
  log.add(tuning, {row});
  const json own = data_of(render_report_html(Reader(path), "last")).at("sections").at("decisions");
  CHECK(own["policy"]["version"] == "abcd");
  CHECK(own["policy"]["training"]["curves"]["1"][0][1] == -1.25);
}

TEST_CASE("the page and the report hold training beside its baseline", "[a-13][d-43][g-05]") {
  const ScratchFolder folder;
  Store store(folder.file("page.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.single_us = 60;
  figures.exposed_us = 7;
  figures.predicted_us = 81;
  figures.details["path"] = "host memory";
  figures.details["losses"] = {3.0, 2.0, 1.0};
  figures.details["accuracies"] = json::parse("[[10,0.4],[20,0.5]]");
  store_training(store,
                 {{{"mg-wfbp", R"({"batch":"8","model":"cnn"})"},
                   {"ddp", R"({"batch":"8","bucket":"1048576","model":"cnn"})"},
                   {"ddp", R"({"batch":"8","bucket":"4194304","model":"cnn"})"}},
                  {80, 100, 120}},
                 figures, 4);
  const Reader reader(folder.file("page.sqlite"));
  const json training = data_of(render_report_html(reader, "last")).at("sections").at("training");
  const json& rows = training.at("rows");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0]["method"] == "mg-wfbp");
  CHECK_THAT(rows[0]["over_ddp"].get<double>(), WithinRel(0.8, 1e-9));
  CHECK_THAT(rows[0]["over_ddp_high"].get<double>(), WithinRel(0.8, 1e-6));
  CHECK(rows[1]["settings"] == "bucket=1 MiB");
  CHECK(rows[1]["path"] == "host memory");
  CHECK(rows[1]["over_ddp"] == 1.0);
  CHECK_THAT(rows[2]["over_ddp"].get<double>(), WithinRel(1.2, 1e-9));
  CHECK_THAT(rows[0]["prediction_error_percent"].get<double>(),
             WithinRel(100 * (81.0 / (80 * 1.015) - 1), 1e-6));
  REQUIRE(training.at("curves").size() == 3);
  CHECK(training["curves"][0]["losses"] == json::parse("[[1,3.0],[2,2.0],[3,1.0]]"));
  CHECK(training["curves"][0]["configuration"] == training["curves"][0]["method"]);
  REQUIRE(training["scaling"].size() == 3);
  CHECK(training["scaling"][0]["efficiency"].is_number());
  CHECK(training["c2c"].size() == 3);
  CHECK(training["ways"].empty());  // no accuracy after epochs
  const std::string markdown = render_report_markdown(reader, "last");
  CHECK_THAT(markdown, ContainsSubstring("## Training\n"));
  CHECK_THAT(markdown, ContainsSubstring("| mg-wfbp"));
}

TEST_CASE(
    "the page has what each way to train takes and comes to, and how far neighbours end apart",
    "[d-98]") {
  const ScratchFolder folder;
  Store store(folder.file("page.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.details = json::parse(R"({"epochs": 1, "accuracies": [[20, 0.7]], "trained_us": 2000,
    "target_reached": true, "gossip": {"consensus": [[10, 0.5], [20, 0.0887]]}})");
  store_training(store,
                 {{{"bsp-a2a", R"({"batch":"8","epochs":"1","model":"cnn","target":"0.6"})"},
                   {"d-psgd", R"({"batch":"8","compression":"topk","epochs":"1","model":"cnn",
                                  "target":"0.6"})"}},
                  {100, 80}},
                 figures, 2);
  const json ways = data_of(render_report_html(Reader(folder.file("page.sqlite")), "last"))
                        .at("sections")
                        .at("training")
                        .at("ways");
  REQUIRE(ways.size() == 2);
  for (const json& way : ways) {
    CHECK(way.at("consensus_distance") == 0.0887);
    CHECK(way.at("reached") == 2);
    CHECK(way.at("configuration")
              .get<std::string>()
              .starts_with(way.at("method").get<std::string>()));
  }
}

TEST_CASE("a run without training has no section for it") {
  const ScratchFolder folder;
  CHECK(data_of(planted_page(folder)).at("sections").at("training").is_null());
}

TEST_CASE("times keep enough digits for the page to round as the tables of the queries do") {
  // 5.20 ms; rounded to four digits first, it would become 5.21 ms.
  CHECK(rounded(5204.63) == 5204.63);
  CHECK(rounded(1.0 / 3) == 0.3333333);
}
