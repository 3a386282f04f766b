#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "reports/page/html_report.hpp"
#include "reports/page/paper_files.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

constexpr const char* kHostile = "it's `touch owned` \"$x\" & 50 %\n$p0_0 << EOD";

/// Bare metal takes 10, 11, 12 us in blocks 0, 1, 2 and the other one twice that.
std::vector<PaperFigure> planted_figures(const ScratchFolder& folder, const std::string& other) {
  Store store(folder.file("page.sqlite"));
  const auto plan = make_plan("page", {"bare-metal", other}, {"allreduce"}, {1024, 4096});
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < 3; ++block)
    for (const auto g : {0U, 1U})
      store_launch(store, plan, plan.groups[g], block, [&](const CellInfo&, int, int) {
        return (g == 0 ? 1.0 : 2.0) * (10.0 + block);
      });
  return paper_figures(report_page_data(Reader(folder.file("page.sqlite")), "last"));
}

const PaperFigure& figure_named(const std::vector<PaperFigure>& figures, const std::string& start) {
  for (const auto& figure : figures)
    if (figure.name.starts_with(start)) return figure;
  FAIL("no figure " << start);
  return figures.front();
}

}  // namespace

TEST_CASE("the figures for a paper hold the page's medians, intervals and ratios") {
  const ScratchFolder folder;
  const auto figures = planted_figures(folder, "cross-docker");
  const auto& latency = figure_named(figures, "latency-");
  REQUIRE(latency.panels.size() == 1);
  REQUIRE(latency.panels[0].lines.size() == 2);
  const auto& base = latency.panels[0].lines[0];
  CHECK(base.label == "bare-metal");
  REQUIRE(base.points.size() == 2);
  CHECK(base.points[0].x == 1024);
  CHECK(base.points[0].value == 11);
  CHECK(base.points[0].low.has_value());
  const auto& overhead = figure_named(figures, "overhead-");
  REQUIRE(overhead.panels[0].lines.size() == 1);
  CHECK(overhead.panels[0].lines[0].points[1].value == 2);
  CHECK(overhead.one_is_equal);
  // An environment's colour is the same in all figures.
  CHECK(overhead.panels[0].lines[0].look == latency.panels[0].lines[1].look);
  const auto& bandwidth = figure_named(figures, "busbw-").panels[0].lines[0].points[0];
  CHECK(*bandwidth.low < bandwidth.value);
  CHECK(bandwidth.value < *bandwidth.high);
}

TEST_CASE("a figure's CSV has plain figures and its LaTeX table people's") {
  const ScratchFolder folder;
  const auto figures = planted_figures(folder, "cross-docker");
  const auto& latency = figure_named(figures, "latency-");
  CHECK_THAT(paper_csv(latency), ContainsSubstring("panel,line,x,value,low,high"));
  CHECK_THAT(paper_csv(latency), ContainsSubstring("bare-metal,1024,11,"));
  const auto table = paper_latex(latency);
  CHECK_THAT(table, ContainsSubstring("message size & bare-metal & cross-docker \\\\"));
  CHECK_THAT(table, ContainsSubstring("1 KiB & 11.0 us ["));
}

TEST_CASE("names from a database are text to LaTeX and to gnuplot, and name no other file") {
  const ScratchFolder folder;
  const auto figures = planted_figures(folder, kHostile);
  for (const auto& figure : figures) {
    CHECK(figure.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") ==
          std::string::npos);
    CHECK_THAT(paper_latex(figure), ContainsSubstring("\\& 50 \\%"));
    CHECK_THAT(paper_gnuplot(figure), ContainsSubstring("'it''s `touch owned`"));
  }
  if (std::system("command -v gnuplot > /dev/null") != 0) SKIP("gnuplot is not installed");
  for (const auto& figure : figures) {
    std::ofstream(folder.file(figure.name + ".gp")) << paper_gnuplot(figure);
    const auto command =
        "cd '" + folder.file("") + "' && gnuplot " + figure.name + ".gp > out.txt 2>&1";
    INFO(figure.name);
    CHECK(std::system(command.c_str()) == 0);
    CHECK(std::filesystem::file_size(folder.file(figure.name + ".svg")) > 1000);
    CHECK(std::filesystem::file_size(folder.file(figure.name + ".pdf")) > 1000);
    // Of a long name gnuplot says, by the fonts that are there, that it hardly fits.
    std::ifstream warned(folder.file("out.txt"));
    for (std::string line; std::getline(warned, line);)
      CHECK((line.empty() || line.find("difficulty fitting plot titles") != std::string::npos));
  }
  CHECK_FALSE(std::filesystem::exists(folder.file("owned")));
}

TEST_CASE("a step's bar has its parts, and what they leave is the rest") {
  json row = {{"model", "cnn"},
              {"batch", 32},
              {"ranks", 2},
              {"environment", "bare-metal"},
              {"backend", "gloo"},
              {"method", "bsp"},
              {"settings", "samples=64"},
              {"step_us", 100.0},
              {"forward_us", 20.0},
              {"backward_us", 30.0},
              {"update_us", 5.0},
              {"exposed_us", nullptr}};
  json other = row;
  other["settings"] = "momentum=0.9 samples=64";
  json progress = row;
  progress["configuration"] = "bsp";
  progress["points"] = {{1.0, 10.0, 0.5}, {2.0, 20.0, 0.75}};
  json page;
  page["cells"] = {{"environments", json::array()},
                   {"backends", json::array()},
                   {"settings", json::array()},
                   {"operations", json::array()},
                   {"columns", json::object()}};
  page["sections"]["training"] = {{"rows", json::array({row, other})},
                                  {"curves", json::array()},
                                  {"progress", json::array({progress})},
                                  {"scaling", json::array()}};
  const auto figures = paper_figures(page);
  const auto& step = figure_named(figures, "step-cnn-batch-32-2-ranks");
  // What all have is no part of a name.
  CHECK(step.places == std::vector<std::string>{"bsp", "bsp (momentum=0.9)"});
  REQUIRE(step.panels.at(0).lines.size() == 5);
  CHECK(step.panels[0].lines[4].points.at(0).value == 45);
  const auto& accuracy = figure_named(figures, "accuracy-bytes");
  CHECK(accuracy.panels.at(0).lines.at(0).points.at(1).x == 20);
  CHECK_THAT(paper_latex(accuracy), ContainsSubstring("75.0 \\%"));
  CHECK_THAT(paper_csv(step), ContainsSubstring("bsp (momentum=0.9),45"));
}
