#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>

#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/page/html_report.hpp"
#include "tests/browser/chromium.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

constexpr const char* kOnGpu = R"({"memory":"device"})";
constexpr std::uint64_t kMiB = 1 << 20;
/// Pixels between the margins of A4.
constexpr int kPaper = 688;

struct Operation {
  std::string architecture;
  std::string collective;
  std::vector<std::uint64_t> sizes;
};

/// What a run measures: every operation in every environment with every backend.
struct Shape {
  std::vector<std::string> environments{"bare-metal", "cross-docker"};
  std::vector<std::pair<std::string, std::string>> backends;  ///< with the settings of their cells
  std::vector<Operation> operations{{"ring", "allreduce", {1024, kMiB}}};
};

/// Five backends as a run on GPUs has them: host libraries copy from and to the GPU.
const std::vector<std::pair<std::string, std::string>> kFive{{"nccl", "{}"},
                                                             {"cuda-aware-mpi", "{}"},
                                                             {"openmpi", kOnGpu},
                                                             {"mpich", kOnGpu},
                                                             {"gloo", kOnGpu}};

SyntheticPlan plan_of(const Shape& shape) {
  SyntheticPlan plan = make_plan("study", {"bare-metal"}, {"allreduce"}, {1024});
  const GroupInfo group_like = plan.groups.front();
  const CellInfo cell_like = plan.cells.front();
  plan.groups.clear();
  plan.cells.clear();
  for (const auto& environment : shape.environments) {
    for (const auto& [backend, settings] : shape.backends) {
      for (const auto& operation : shape.operations) {
        GroupInfo group = group_like;
        group.id = stable_id(environment + backend + operation.architecture + operation.collective);
        group.environment = environment;
        group.profile_json = R"({"kind":")" + environment + R"("})";
        group.backend = backend;
        group.architecture = operation.architecture;
        plan.groups.push_back(group);
        for (const auto size : operation.sizes) {
          CellInfo cell = cell_like;
          cell.id = stable_id(group.id + std::to_string(size));
          cell.group_id = group.id;
          cell.collective = operation.collective;
          cell.size_bytes = size;
          cell.knobs_json = settings;
          plan.cells.push_back(cell);
        }
      }
    }
  }
  return plan;
}

/// The page of a run, opened.
class Opened {
 public:
  explicit Opened(const Shape& shape, bool measured = true) : path_(folder_.file("report.html")) {
    {
      Store store(folder_.file("page.sqlite"));
      const auto plan = plan_of(shape);
      store.begin_run(plan.run, plan.groups, plan.cells);
      for (const auto& group : plan.groups) {
        if (!measured) store.mark_unsupported(plan.run.id, group.id, "no such library here");
        for (int block = 0; measured && block < 3; ++block)
          store_launch(store, plan, group, block, [&](const CellInfo& cell, int, int) {
            const double base = 10.0 + static_cast<double>(cell.size_bytes) / 1024.0;
            return base * (group.environment == "bare-metal" ? 1 : 2) * (1 + 0.002 * block);
          });
      }
      store.end_run(plan.run.id, "complete");
    }
    std::ofstream(path_) << render_report_html(Reader(folder_.file("page.sqlite")), "last");
    browser = std::make_unique<Chromium>(std::filesystem::path(path_).parent_path().string());
    open({});
  }
  void open(const Chromium::Screen& screen) {
    REQUIRE(browser->open_report(path_, screen));
    browser->evaluate("Report.drawAll()");
  }
  [[nodiscard]] nlohmann::json value(const std::string& expression) const {
    return browser->evaluate(expression);
  }
  [[nodiscard]] std::string text(const std::string& selector) const {
    return value("document.querySelector('" + selector + "')?.innerText ?? ''").get<std::string>();
  }

  std::unique_ptr<Chromium> browser;

 private:
  ScratchFolder folder_;
  std::string path_;
};

constexpr const char* kBackendsShown = "new Set(Report.visible().map(c => c.backend)).size";

/// Names of tables that are wider than the page.
constexpr const char* kCutTables = R"(
  [...document.querySelectorAll('table')].filter(table => table.checkVisibility() &&
    table.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map(table => `${table.closest('section').id}: ${table.caption.innerText.slice(0, 40)}`))";

}  // namespace

TEST_CASE("a page of GPU runs begins with all backends at equal settings") {
  if (Chromium::program().empty()) SKIP("no Chromium here: apt-get install chromium");
  const Opened page({.backends = kFive});
  CHECK(page.value(kBackendsShown) == 5);
  CHECK(page.value("Report.lists.settings") == nlohmann::json{"memory=device"});
  CHECK_THAT(page.text("#components"), ContainsSubstring("cuda-aware-mpi"));
}

TEST_CASE("backends without common settings begin each with its own") {
  if (Chromium::program().empty()) SKIP("no Chromium here: apt-get install chromium");
  const Opened page({.backends = {{"mpich", "{}"}, {"openmpi", R"({"segment":"65536"})"}}});
  CHECK(page.value(kBackendsShown) == 2);
  const std::string select = "[...document.querySelectorAll('#filter select')].at(-1)";
  CHECK(page.value(select + ".selectedOptions[0].text") == "each backend's usual");
  page.browser->evaluate(select + ".selectedIndex = 1; " + select +
                         ".dispatchEvent(new Event('change'))");
  CHECK(page.value(kBackendsShown) == 1);
  CHECK(page.browser->complaints() == std::vector<std::string>{});
}

TEST_CASE("a published figure stands beside the measured one of its architecture", "[G-25]") {
  if (Chromium::program().empty()) SKIP("no Chromium here: apt-get install chromium");
  const Opened page(
      {.backends = {{"nccl", "{}"}},
       .operations = {{"ring", "broadcast", {4 * kMiB}}, {"ps", "broadcast", {kMiB}}}});
  const auto rows = [&](const std::string& begin) {
    return page.value(
        "[...document.querySelectorAll('#reference tbody tr')].map(r => "
        "[...r.cells].map(c => c.innerText).join(' | ')).filter(t => "
        "t.startsWith('" +
        begin + "'))");
  };
  const auto published = rows("containers and libraries | broadcast by NCCL");
  REQUIRE(published.size() == 2);  // of the micro-benchmark and of training
  for (const auto& row : published) {
    CHECK_THAT(row.get<std::string>(), ContainsSubstring("1 MiB, "));
    CHECK_THAT(row.get<std::string>(), !ContainsSubstring("4 MiB"));
    // Ratios here over the published ones, rounded three times.
    const auto cells = split(row.get<std::string>(), '|');
    REQUIRE(cells.size() == 6);
    const auto number = [&](std::size_t i) { return std::stod(std::string(trim(cells[i]))); };
    CHECK_THAT(number(5), WithinRel(number(4) / number(2), 0.02));
  }
  CHECK(rows("ring broadcast | 4 MiB").size() == 1);
  CHECK(rows("containers and libraries | allreduce by NCCL").empty());
}

TEST_CASE("a run without any figure has a page that says so") {
  if (Chromium::program().empty()) SKIP("no Chromium here: apt-get install chromium");
  const Opened page({.backends = {{"nccl", "{}"}}}, false);
  CHECK(page.browser->complaints() == std::vector<std::string>{});
  CHECK_THAT(page.text("main"),
             ContainsSubstring("Nothing was measured") && !ContainsSubstring("could not be drawn"));
  CHECK_THAT(page.text("#coverage"), ContainsSubstring("no such library here"));
  CHECK(page.value("[...document.querySelectorAll('main section')].map(s => s.id)") ==
        nlohmann::json{"coverage", "provenance"});
}

TEST_CASE("paper shows every column of five backends in five environments") {
  if (Chromium::program().empty()) SKIP("no Chromium here: apt-get install chromium");
  Opened page({.environments = {"bare-metal", "singularity", "single-docker", "cross-docker",
                                "cross-docker-roce", "cross-docker-tcp"},
               .backends = kFive,
               .operations = {{"ring", "reduce_scatter", {1024, kMiB}}, {"ps", "gather", {kMiB}}}});
  // One wide table, one per environment for narrow windows, and paper's pieces.
  CHECK(page.value("['.broad', '.narrow', '.paper'].map(kind => "
                   "document.querySelectorAll(`#overhead ${kind} table.heat`).length)") ==
        nlohmann::json{1, 5, 3});
  page.open({.width = kPaper, .print = true});
  CHECK(page.value(kCutTables) == nlohmann::json::array());
  // 25 pairs of environment and backend, each once.
  CHECK(page.value(
            "[...document.querySelectorAll('#overhead table.heat')].filter(t => "
            "t.checkVisibility()).flatMap(t => [...t.tHead.rows[0].cells].slice(2)).length") == 25);
  // Charts drawn for a wide window are shrunk into their column, half of the paper.
  page.open({.width = 1400, .print = true});
  REQUIRE(page.browser->becomes_true("document.querySelector('#overhead .uplot')"));
  CHECK(page.value("[...document.querySelectorAll('.uplot')].filter(chart => "
                   "chart.getBoundingClientRect().width > 334).length") == 0);
  page.open({.width = 1400});
  CHECK(page.value("[...document.querySelectorAll('#overhead table.heat')].filter(t => "
                   "t.checkVisibility()).length") == 1);
}

TEST_CASE("long names of settings do not widen a telephone's page") {
  if (Chromium::program().empty()) SKIP("no Chromium here: apt-get install chromium");
  const std::string long_settings =
      R"({"coll_tuned_allreduce_algorithm":"6","coll_tuned_allreduce_algorithm_segmentsize":"65536"})";
  Opened page({.backends = {{"openmpi", long_settings}, {"mpich", "{}"}},
               .operations = {{"ring", "reduce_scatter", {1024, kMiB}},
                              {"ps", "push_pull", {1024, kMiB}}}});
  for (const bool dark : {false, true}) {
    page.open({.width = 380, .dark = dark});
    CHECK(page.value("document.documentElement.scrollWidth") <= 380);
    CHECK(page.value("[...document.querySelectorAll('select')].filter(s => "
                     "s.getBoundingClientRect().right > 380).length") == 0);
  }
}

TEST_CASE("the page calls no result verified that was not") {
  if (Chromium::program().empty()) SKIP("no Chromium here: apt-get install chromium");
  const Opened page({.backends = {{"openmpi", "{}"}}});
  CHECK_THAT(page.text("#coverage"), ContainsSubstring("every rank's result was verified"));
  const auto with = [&](const std::string& unverified) {
    return page
        .value(
            "(() => { const own = Report.data.sections.coverage; own.unverified = " + unverified +
            "; Report.registered.forEach(s => { s.dirty = true; }); Report.drawAll(); "
            "return document.querySelector('#coverage').innerText; })()")
        .get<std::string>();
  };
  CHECK_THAT(with("own.measurements"),
             ContainsSubstring("no result was found wrong; here none was verified") &&
                 !ContainsSubstring("result was verified"));
  CHECK_THAT(with("3"), ContainsSubstring("3 of 12 results were not verified"));
}
