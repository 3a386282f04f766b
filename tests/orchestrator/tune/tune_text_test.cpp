// What a search prints for people.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/terminal_lines.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/experiment/tune_reader.hpp"
#include "orchestrator/tune/tune_output.hpp"
#include "tests/orchestrator/experiment/demo_experiment.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

TunePlan two_sizes() {
  const Experiment experiment = testing::parsed(R"(name = "demo"
[axes]
environment = "bare-metal"
backend = "openmpi"
architecture = "ring"
ranks = 2
[[work]]
collective = "allreduce"
size = ["64KiB", "1MiB"]
[tune]
sweep_launches = 9
)");
  return make_tune_plan(experiment, make_plan(experiment, {}, nullptr),
                        tune_options_of(experiment));
}

TunedTask tuned(std::size_t task) {
  TunedTask row;
  row.task = task;
  row.entry.arm = "library";
  row.entry.evidence.default_us = 290;
  return row;
}

/// A search of two cells: one choice was compared, of the other cell nothing was measured.
TuningResult searched() {
  TuningResult result;
  result.tasks = {tuned(0), tuned(1)};
  TunedTask& compared = result.tasks[0];
  TableEvidence& evidence = compared.entry.evidence;
  evidence.candidate = "recursive_doubling";
  evidence.ratio = 1.27;
  evidence.ratio_low = 0.9;
  evidence.ratio_high = 2.36;
  evidence.verdict = "UNCLEAR";
  compared.outcome.guard = GuardVerdict::not_confirmed;
  compared.outcome.tried = 4;
  compared.entry.flags = {std::string(kUndecided)};
  result.tasks[1].entry.flags = {std::string(kUnexplored)};
  return result;
}

}  // namespace

TEST_CASE("a search's table says what its ratio is of and what its words mean", "[E-146]") {
  const TunePlan plan = two_sizes();
  REQUIRE(plan.tasks.size() == 2);
  const std::string text = tuning_text(plan, searched(), TuningKind::search, 0);
  CHECK_THAT(text, ContainsSubstring("1.27 [0.900, 2.36]") &&
                       ContainsSubstring("compared: the best other setting that the search saw") &&
                       ContainsSubstring("ratio: its time over the default's there; below 1") &&
                       ContainsSubstring("Where it is not FASTER, the default stays."));
  CHECK_THAT(text, ContainsSubstring("290 us") && ContainsSubstring("4 of "));
  // Words that stand in the table, and no others.
  for (const char* word : {"not-confirmed: ", "undecided: ", "unexplored: "})
    CHECK_THAT(text, ContainsSubstring(word));
  for (const char* word : {"slower-than-default", "non_actionable_regime", "nothing_to_set"})
    CHECK_THAT(text, !ContainsSubstring(word));
}

TEST_CASE("a search's table fits 100 columns in one part") {
  const std::string text = tuning_text(two_sizes(), searched(), TuningKind::search, 100);
  for (const auto& line : split(text, '\n')) CHECK(columns_of_text(line) <= 100);
  INFO(text);
  // What both rows share stands above, and one heading below it.
  const auto lines = split(text, '\n');
  CHECK(std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
          return line.find("verdict") != std::string::npos &&
                 line.find("ratio") == std::string::npos;
        }) <= 1);
  CHECK(std::count_if(lines.begin(), lines.end(),
                      [](const std::string& line) { return line.starts_with("collective"); }) <= 1);
}

TEST_CASE("a file that is judged is said to be, not searched") {
  const std::string text = tuning_text(two_sizes(), searched(), TuningKind::judged, 100);
  CHECK_THAT(text, ContainsSubstring("setting: what the file asks for") &&
                       ContainsSubstring("A file is judged, not changed") &&
                       !ContainsSubstring("the default stays"));
  // What was compared stands in the file still.
  CHECK_THAT(text, ContainsSubstring("not-confirmed: not surely faster than the default.") &&
                       !ContainsSubstring("not kept"));
  CHECK_THAT(tuning_text(two_sizes(), searched(), TuningKind::search, 100),
             ContainsSubstring("not-confirmed: not surely faster than the default: not kept."));
}

TEST_CASE("where nothing was compared, the table explains no ratio") {
  TuningResult result;
  result.tasks = {tuned(0)};
  const std::string text = tuning_text(two_sizes(), result, TuningKind::search, 100);
  CHECK_THAT(text, ContainsSubstring("setting: ") && !ContainsSubstring("verdict: of"));
}

TEST_CASE("what runs is no library's choice: between runs the file's first way is the default",
          "[E-200]") {
  const std::string text = tuning_text(two_sizes(), searched(), TuningKind::between_runs, 100);
  CHECK_THAT(text, ContainsSubstring("the first one of the file is the default"));
  CHECK_THAT(text, !ContainsSubstring("table of settings"));
  CHECK_THAT(text, ContainsSubstring("Where it is not FASTER, the default stays."));
}
