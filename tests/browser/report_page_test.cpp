#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <memory>

#include "core/vocabulary/digest.hpp"
#include "db/decision_log.hpp"
#include "reports/page/html_report.hpp"
#include "tests/browser/chromium.hpp"
#include "tests/db/synthetic.hpp"
#include "tests/reports/queries/trained_run.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr const char* kOddName = "</script><script>document.title='taken'</script>";

/// Times that grow with size; cross-docker takes three times bare metal's, singularity the same.
double planted(const std::string& environment, const CellInfo& cell, int block) {
  const double base = 10.0 + static_cast<double>(cell.size_bytes) / 1024.0;
  return base * (environment == "cross-docker" ? 3.0 : 1.0) * (1.0 + 0.002 * block);
}

/// How policies were trained, as older ones say it (rewards of calls) and as newer ones do (regret
/// of searches).
constexpr const char* kRewarded =
    R"({"training": {"seed": 1, "curves": {"1": [[1, -1.4], [2, -1.3], [3, -1.3], [4, -1.2], [5, -1.2],
        [6, -1.2], [7, -1.1], [8, -1.2], [9, -1.1], [10, -1.1]]}, "held_out": [{"agent": "bandit",
        "mean_reward": -1.1, "final_regret_percent": 2, "search_tasks": 9, "evaluations_to_95": 5,
        "reached_95_percent": 90, "evaluations": 7, "gain_percent_of_oracle": 97}]}})";
constexpr const char* kSearched =
    R"({"training": {"seed": 1, "curves": {"1": [[1, 0.4], [2, 0.3], [3, 0.3], [4, 0.2], [5, 0.2],
        [6, 0.2], [7, 0.1], [8, 0.2], [9, 0.1], [10, 0.1]]}, "held_out": [{"agent": "bandit",
        "places": 9, "default_regret": 0.5, "regret_1": 0.3, "regret_2": 0.2, "regret_4": 0.1,
        "changed_by_context": 0, "worth_of_context": 0}]}})";

/// A page of a run with two backends, two operations, four sizes and four blocks, opened.
class OpenPage {
 public:
  explicit OpenPage(const char* trained = kRewarded) : path_(folder_.file("report.html")) {
    Store store(folder_.file("page.sqlite"));
    fill(store);
    tune(folder_.file("page.sqlite"), trained);
    html = render_report_html(Reader(folder_.file("page.sqlite")), "last");
    std::ofstream(path_) << html;
    browser = std::make_unique<Chromium>(std::filesystem::path(path_).parent_path().string());
    open({});
  }
  void open(const Chromium::Screen& screen) { REQUIRE(browser->open_report(path_, screen)); }
  [[nodiscard]] std::int64_t count(const std::string& selector) const {
    return browser->evaluate("document.querySelectorAll('" + selector + "').length")
        .get<std::int64_t>();
  }

  std::string html;
  std::unique_ptr<Chromium> browser;

 private:
  static void fill(Store& store) {
    auto plan = make_plan("page-run", {"bare-metal", "singularity", "cross-docker"},
                          {"allreduce", "broadcast"}, {1024, 16384, 262144, 4194304});
    plan.run.name = kOddName;
    const auto groups = plan.groups;
    const auto cells = plan.cells;
    for (const auto& group : groups) {
      auto other = group;
      other.id = stable_id("gloo " + group.id);
      other.backend = "gloo";
      plan.groups.push_back(other);
      for (const auto& cell : cells) {
        if (cell.group_id != group.id) continue;
        auto copy = cell;
        copy.id = stable_id("gloo " + cell.id);
        copy.group_id = other.id;
        plan.cells.push_back(copy);
      }
    }
    store.begin_run(plan.run, plan.groups, plan.cells);
    for (int block = 0; block < 4; ++block)
      for (const auto& group : plan.groups)
        store_launch(store, plan, group, block, [&](const CellInfo& cell, int, int) {
          return planted(group.environment, cell, block);
        });
    store.end_run(plan.run.id, "complete");
  }
  /// Two agents try three settings of one task.
  static void tune(const std::string& path, const char* trained) {
    DecisionLog log(path);
    for (const char* agent : {"bandit", "random"}) {
      const auto tuning = log.begin({"page-run", "live", agent, "", 1, trained});
      std::vector<DecisionInfo> decisions;
      for (int step = 0; step < 4; ++step) {
        DecisionInfo row;
        row.task_key = "openmpi/ring/allreduce/2^20/r2n1";
        row.environment = "bare-metal";
        row.regime = "abcd";
        row.step = step;
        row.kind = step == 0 ? "reference" : step == 3 ? "final" : "explore";
        row.arm = "algorithm " + std::to_string(step % 3);
        row.candidates_json = row.asked_json = row.state_json = "{}";
        row.time_us = 10.0 - step % 3;
        row.reference_us = 10.0;
        decisions.push_back(row);
      }
      log.add(tuning, decisions);
    }
  }

  ScratchFolder folder_;
  std::string path_;
};

/// Every canvas holds more than its background.
constexpr const char* kBlankCanvases = R"(
  [...document.querySelectorAll('.plot canvas')].filter(canvas => {
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    const colours = new Set();
    for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3]) colours.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
    return colours.size < 4;
  }).length)";

/// The page of the folder's page.sqlite, all charts drawn.
void draw_page(Chromium& browser, const ScratchFolder& folder) {
  const auto path = folder.file("report.html");
  std::ofstream(path) << render_report_html(Reader(folder.file("page.sqlite")), "last");
  browser.show({});
  browser.open(path);
  REQUIRE(browser.becomes_true("document.documentElement.dataset.firstChartMs"));
  browser.evaluate("Report.drawAll()");
}

}  // namespace

TEST_CASE("the page draws its charts without a complaint and without the network") {
  if (Chromium::program().empty()) SKIP("no Chromium here: apt-get install chromium");
  OpenPage page;
  CHECK(page.browser->evaluate("Number(document.documentElement.dataset.firstChartMs) < 2000") ==
        true);
  page.browser->evaluate("Report.drawAll()");
  REQUIRE(page.browser->becomes_true("document.querySelectorAll('.plot canvas').length >= 4"));
  CHECK(page.browser->becomes_true(std::string(kBlankCanvases) + " === 0"));
  // 2 environments x 2 backends x 2 operations x 4 sizes have a ratio to bare metal.
  CHECK(page.count("#overview circle") == 32);
  CHECK(page.count("#components .bar i") > 0);
  CHECK(page.browser->becomes_true(
      "document.querySelectorAll('#decisions .plot canvas').length === 3"));
  CHECK(page.browser->complaints() == std::vector<std::string>{});
  REQUIRE(page.browser->requests().size() == 1);
  CHECK_THAT(page.browser->requests().front(), ContainsSubstring("file://"));

  SECTION("what the head does not have leaves no word there") {
    const auto head = page.browser->evaluate("document.getElementById('top').innerText");
    CHECK_THAT(head.get<std::string>(), !ContainsSubstring("null"));
  }
  SECTION("names from the database are text, whatever they hold") {
    CHECK(page.browser->evaluate("document.querySelector('h1').textContent") == kOddName);
    CHECK(page.browser->evaluate("document.title") != "taken");
  }
  SECTION("the overview says what was planted") {
    const auto text = page.browser->evaluate("document.getElementById('overview').innerText");
    CHECK_THAT(text.get<std::string>(), ContainsSubstring("3×"));
    CHECK_THAT(text.get<std::string>(), ContainsSubstring("16 slower, 0 same"));
    CHECK_THAT(text.get<std::string>(), ContainsSubstring("0 slower, 16 same"));
  }
  SECTION("every chart stands beside its figures as a table") {
    page.browser->evaluate(
        "document.querySelectorAll('details.figures').forEach(d => { d.open = true; })");
    REQUIRE(page.browser->becomes_true(
        "[...document.querySelectorAll('details.figures')].every(d => d.querySelector('table'))"));
    // 3 environments x 2 backends x 4 sizes of an operation, then one fit per curve.
    CHECK(page.count("#latency details:first-of-type tbody tr") == 24);
    CHECK(page.count("#latency details:last-of-type tbody tr") == 6);
    CHECK(page.count("main section .method") >= 6);
  }
}

TEST_CASE("the page says what searches left a policy to gain, as falling curves") {
  if (Chromium::program().empty()) SKIP("no Chromium here: apt-get install chromium");
  OpenPage page(kSearched);
  page.browser->evaluate("Report.drawAll()");
  REQUIRE(page.browser->becomes_true(
      "document.querySelectorAll('#decisions .plot canvas').length === 3"));
  const auto text =
      page.browser->evaluate("document.getElementById('decisions').innerText").get<std::string>();
  CHECK_THAT(text, ContainsSubstring("lower is better"));
  CHECK_THAT(text, ContainsSubstring("64.9 %"));  // e^0.5 - 1, of the default
  CHECK_THAT(text, ContainsSubstring("10.5 %"));
  CHECK_THAT(text, !ContainsSubstring("tries to 95 %"));
  CHECK(page.browser->complaints() == std::vector<std::string>{});
}

TEST_CASE("the page is worked by keyboard alone") {
  if (Chromium::program().empty()) SKIP("no Chromium here: apt-get install chromium");
  OpenPage page;
  auto& browser = *page.browser;
  SECTION("the filter") {
    browser.evaluate("document.querySelector('#filter input').focus()");
    browser.press("Tab");
    browser.press("Tab");
    browser.press(" ");  // the third environment: cross-docker
    CHECK(browser.becomes_true("document.querySelectorAll('#overview circle').length === 16"));
    browser.press(" ");
    CHECK(browser.becomes_true("document.querySelectorAll('#overview circle').length === 32"));
  }
  SECTION("points of a chart are read out") {
    browser.evaluate("Report.drawAll()");
    REQUIRE(browser.becomes_true("document.querySelector('#latency .plot canvas')"));
    browser.evaluate("document.querySelector('#latency .plot').focus()");
    browser.press("ArrowRight");
    const std::string live = "document.getElementById('live').textContent";
    CHECK(browser.becomes_true(live + ".startsWith('bare-metal, 1 KiB, 11')"));
    browser.press("ArrowDown");
    browser.press("ArrowDown");
    browser.press("ArrowRight");
    CHECK(browser.becomes_true(live + ".startsWith('cross-docker, 16 KiB, 78')"));
    browser.press("Escape");
    CHECK(browser.becomes_true("[...document.querySelectorAll('.tip')].every(t => t.hidden)"));
  }
  SECTION("the theme") {
    const std::string paper = "getComputedStyle(document.body).backgroundColor";
    const auto light = browser.evaluate(paper);
    browser.evaluate("document.getElementById('theme').focus()");
    browser.press("Enter");
    CHECK(browser.becomes_true("document.getElementById('theme').ariaPressed === 'true'"));
    CHECK(browser.evaluate(paper) != light);
  }
  CHECK(browser.complaints() == std::vector<std::string>{});
}

TEST_CASE("the page fits dark rooms, telephones and paper") {
  if (Chromium::program().empty()) SKIP("no Chromium here: apt-get install chromium");
  OpenPage page;
  const std::string paper = "getComputedStyle(document.body).backgroundColor";
  const auto light = page.browser->evaluate(paper);
  Chromium::Screen screen;
  SECTION("dark, as the system asks") {
    screen.dark = true;
    page.open(screen);
    CHECK(page.browser->evaluate(paper) != light);
  }
  SECTION("a narrow window scrolls down only") {
    screen.width = 390;
    page.open(screen);
    page.browser->evaluate("Report.drawAll()");
    CHECK(page.browser->becomes_true("document.querySelectorAll('.plot canvas').length >= 4"));
    CHECK(page.browser->evaluate("document.documentElement.scrollWidth") <= 390);
    // Nor does a column of a table hide behind the edge: its rows are lists there.
    CHECK(page.browser->evaluate("document.querySelectorAll('table.folds').length >= 2") == true);
    page.browser->evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })");
    CHECK(page.browser->becomes_true("document.querySelectorAll('table.folds').length >= 5"));
    CHECK(page.browser->evaluate(
              "[...document.querySelectorAll('table.folds')].filter(t => "
              "t.parentNode.scrollWidth > t.parentNode.clientWidth + 1).length") == 0);
  }
  SECTION("print shows every section and no controls") {
    screen.dark = true;
    page.open(screen);
    const std::string pdf = page.browser->pdf();
    CHECK(pdf.starts_with("%PDF"));
    screen.print = true;
    page.browser->show(screen);
    CHECK(page.browser->evaluate("getComputedStyle(document.getElementById('filter')).display") ==
          "none");
    CHECK(page.browser->evaluate("Report.registered.every(s => !s.node || !s.dirty)") == true);
  }
  CHECK(page.browser->complaints() == std::vector<std::string>{});
}

TEST_CASE("the page draws training: table, breakdown, prediction and curves") {
  if (Chromium::program().empty()) SKIP("no Chromium here: apt-get install chromium");
  const ScratchFolder folder;
  Store store(folder.file("page.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.single_us = 60;
  figures.forward_us = 20;
  figures.backward_us = 40;
  figures.exposed_us = 7;
  figures.predicted_us = 81;
  figures.compute_us = 40;
  figures.intensity = 100;
  figures.c2c_predicted = figures.c2c_measured = 1e-3;
  figures.details["cost_us"] = nlohmann::json::parse("[[100,20],[1000,110]]");
  for (int i = 0; i < 200; ++i) figures.details["losses"].push_back(3.0 / (1 + i));
  figures.details["accuracies"] = nlohmann::json::parse("[[10,0.4],[20,0.5],[30,0.7]]");
  store_training(store,
                 {{{"mg-wfbp", R"({"batch":"8","model":"cnn"})"},
                   {"ddp", R"({"batch":"8","bucket":"1048576","model":"cnn"})"}},
                  {80, 100}},
                 figures, 4);
  Chromium browser(folder.file("."));
  draw_page(browser, folder);
  CHECK(browser.becomes_true("document.querySelectorAll('#training .plot canvas').length === 3"));
  CHECK(browser.becomes_true(std::string(kBlankCanvases) + " === 0"));
  const auto text = browser.evaluate("document.getElementById('training').innerText");
  CHECK_THAT(text.get<std::string>(), ContainsSubstring("mg-wfbp"));
  // A page of training alone has no section over message sizes.
  CHECK(browser.evaluate("document.getElementById('latency') === null") == true);
  CHECK_THAT(text.get<std::string>(), ContainsSubstring("0.8×"));
  CHECK_THAT(text.get<std::string>(), ContainsSubstring("bucket=1 MiB"));
  CHECK(browser.evaluate("document.querySelectorAll('#training .bars .bar').length") == 2);
  // What C2C says of the cell; what studies published stands in a section of its own.
  CHECK_THAT(text.get<std::string>(), ContainsSubstring("lossless_saturated: bare-metal, cnn"));
  CHECK(browser.complaints() == std::vector<std::string>{});
}

TEST_CASE("ways to train by one method are told apart in each chart, and leave bars room",
          "[G-23]") {
  if (Chromium::program().empty()) SKIP("no Chromium here: apt-get install chromium");
  const ScratchFolder folder;
  Store store(folder.file("page.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.forward_us = 20;
  figures.backward_us = 40;
  for (int i = 0; i < 20; ++i) figures.details["losses"].push_back(3.0 / (1 + i));
  figures.details["epochs"] = 2;
  figures.details["accuracies"] = nlohmann::json::parse("[[5,0.4],[10,0.5]]");
  const auto settings = [](const std::string& more) {
    return R"({"batch":"8","data":"generated-hard","epochs":"2","learning_rate":"0.01","looks":"2",)"
           R"("model":"cnn-small","pace":"2","samples":"600","slow_factor":"3","slow_worker":"1",)" +
           more + R"("target":"0.12","threads":"1"})";
  };
  store_training(store,
                 {{{"bsp-a2a", settings("")},
                   {"bsp-a2a", settings(R"("synchronisation":"local","local_steps":"4",)")},
                   {"bsp-a2a", settings(R"("local_steps":"8","synchronisation":"local",)")}},
                  {80, 100, 120}},
                 figures, 2);
  Chromium browser(folder.file("."));
  draw_page(browser, folder);
  for (const char* chart : {"Loss over steps", "Accuracy over steps", "Accuracy over time"})
    for (const char* way : {"bsp-a2a local, local_steps 4", "bsp-a2a local, local_steps 8"})
      CHECK_THAT(browser
                     .evaluate("document.querySelector('#training .plot[aria-label^=\"" +
                               std::string(chart) + "\"]').ariaLabel")
                     .get<std::string>(),
                 ContainsSubstring(way));
  CHECK(browser.evaluate("Math.min(...[...document.querySelectorAll('#training .bars .bar')].map("
                         "bar => bar.parentElement.getBoundingClientRect().width)) > 200") == true);
  CHECK(browser.becomes_true(std::string(kBlankCanvases) + " === 0"));
  CHECK(browser.complaints() == std::vector<std::string>{});
}

TEST_CASE("a window of 1,000 pixels holds the table of training, and what is constant stands above",
          "[G-23]") {
  if (Chromium::program().empty()) SKIP("no Chromium here: apt-get install chromium");
  const ScratchFolder folder;
  Store store(folder.file("page.sqlite"));
  TrainingFigures figures = usual_figures();
  figures.predicted_us = 81;
  figures.accuracy = 0.7;
  figures.details["epochs"] = 2;
  const auto way = [](const std::string& more) {
    return R"({"batch":"8","data":"generated-hard","epochs":"2","learning_rate":"0.01","looks":"2",)"
           R"("model":"cnn-small","pace":"2","samples":"600",)" +
           more + R"("threads":"1"})";
  };
  store_training(
      store,
      {{{"bsp-a2a", way("")},
        {"ddp", way(R"("bucket":"1048576",)")},
        {"bsp-a2a", way(R"("compression":"topk","density":"0.01","error_feedback":"off",)")},
        {"bsp-a2a", way(R"("synchronisation":"local","local_steps":"4","shares":"linear",)")},
        {"bsp-a2a", way(R"("synchronisation":"local","local_steps":"8","shares":"linear",)")}},
       {80, 90, 100, 110, 120}},
      figures, 4);
  Chromium browser(folder.file("."));
  draw_page(browser, folder);
  browser.show({.width = 1000});
  CHECK(browser.evaluate("[...document.querySelectorAll('#training .scroll')].filter(s => "
                         "s.scrollWidth > s.clientWidth + 1).length") == 0);
  const auto text = browser.evaluate("document.getElementById('training').textContent");
  CHECK_THAT(text.get<std::string>(),
             ContainsSubstring("All rows: bare-metal, openmpi, model cnn-small, batch 8") &&
                 ContainsSubstring("ddp (bucket=1 MiB)") &&
                 ContainsSubstring("bsp-a2a topk: compression=topk density=0.01") &&
                 ContainsSubstring("bsp-a2a local #2: local_steps=8 shares=linear"));
  CHECK(browser.evaluate("[...document.querySelector('#training thead').querySelectorAll('th')]"
                         ".filter(h => ['model', 'launches', 'epochs'].includes(h.textContent))"
                         ".length") == 0);
  CHECK(browser.complaints() == std::vector<std::string>{});
}

TEST_CASE("the page draws the accuracy over time and bytes of what trains by epochs", "[d-98]") {
  if (Chromium::program().empty()) SKIP("no Chromium here: apt-get install chromium");
  const ScratchFolder folder;
  Store store(folder.file("page.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.single_us = figures.compute_us = 60;
  figures.intensity = 100;
  figures.wire_bytes = 1000;
  figures.c2c_predicted = figures.c2c_measured = 1e-3;
  figures.details = nlohmann::json::parse(R"({"losses": [null, 2.2, 2.1, 2.0], "epochs": 3,
    "accuracies": [[1, 0.3], [2, 0.5], [3, 0.7]], "trained_us": 240, "target_reached": true,
    "gossip": {"consensus": [[3, 0.0887]], "spectral_gap": 0.5}})");
  figures.accuracy = 0.7;
  store_training(store,
                 {{{"mg-wfbp", R"({"batch":"8","epochs":"3","model":"cnn","target":"0.6"})"},
                   {"bsp-a2a", R"({"batch":"8","compression":"topk","epochs":"3","model":"cnn",
                                   "target":"0.6"})"}},
                  {80, 100}},
                 figures, 4);
  Chromium browser(folder.file("."));
  draw_page(browser, folder);
  const auto text =
      browser.evaluate("document.getElementById('training').textContent").get<std::string>();
  CHECK_THAT(text, !ContainsSubstring("could not be drawn"));
  CHECK_THAT(text, ContainsSubstring("Accuracy over time"));
  CHECK_THAT(text, ContainsSubstring("Accuracy over bytes sent"));
  CHECK_THAT(text, ContainsSubstring("Time against accuracy") &&
                       ContainsSubstring("bsp-a2a topk") && ContainsSubstring("70 %") &&
                       ContainsSubstring("Consensus distance: root of") &&
                       ContainsSubstring("0.0887"));
  CHECK(browser.becomes_true(std::string(kBlankCanvases) + " === 0"));
  CHECK(browser.complaints() == std::vector<std::string>{});
}

TEST_CASE("the page draws speed-up over ranks where there are several numbers of them", "[G-07]") {
  if (Chromium::program().empty()) SKIP("no Chromium here: apt-get install chromium");
  std::vector<TrainedCase> cells;
  for (const char* method : {"bsp-a2a", "mg-wfbp"})
    for (const int ranks : {2, 4, 8}) {
      TrainedCase cell{method, "mlp"};
      cell.ranks = ranks;
      cell.figures = usual_figures();
      cells.push_back(cell);
    }
  const TrainedRun run(cells);
  const ScratchFolder folder;
  const auto path = folder.file("report.html");
  std::ofstream(path) << render_report_html(Reader(run.file()), "last");
  Chromium browser(std::filesystem::path(path).parent_path().string());
  browser.show({});
  browser.open(path);
  REQUIRE(browser.becomes_true("document.documentElement.dataset.firstChartMs"));
  browser.evaluate("Report.drawAll()");
  CHECK(browser.becomes_true(
      "[...document.querySelectorAll('#training .plot')].filter(p => "
      "p.getAttribute('aria-label').startsWith('Speed-up by ranks. bsp-a2a, mg-wfbp') && "
      "p.querySelector('canvas')).length === 1"));
  CHECK(browser.becomes_true(std::string(kBlankCanvases) + " === 0"));
  CHECK(browser.complaints() == std::vector<std::string>{});
}
