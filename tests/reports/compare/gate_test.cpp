#include "reports/compare/gate.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <random>

#include "reports/render/comparison_junit.hpp"
#include "tests/reports/compare/compared_runs.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

ComparisonOptions gate_options() {
  ComparisonOptions options;
  options.band.relative = 0.05;
  options.correct_for_table = false;
  return options;
}

ComparisonSide side_of(const Runs& runs, const std::string& run) {
  return load_side(parse_side(run, {runs.folder.file("a.sqlite"), "last"}), {});
}

/// A side of 20 cells by six launches each, without a database.
ComparisonSide drawn(const std::string& run, std::mt19937_64& random, double factor) {
  std::normal_distribution<double> noise(0, 0.05);
  ComparisonSide side;
  side.run_id = run;
  for (int cell = 0; cell < 20; ++cell) {
    CellFigure figure;
    figure.run_id = run;
    figure.environment = "bare-metal";
    figure.size_bytes = 1024 << cell;
    for (int block = 0; block < 6; ++block) {
      LaunchFigure launch;
      launch.block = block;
      launch.median_us = 100 * (cell == 7 ? factor : 1) * std::exp(noise(random));
      figure.launches.push_back(launch);
    }
    side.figures.push_back(std::move(figure));
  }
  return side;
}

Gate gate_of(std::mt19937_64& random, double factor) {
  const auto reference = drawn("reference", random, 1);
  Gate gate = first_look(reference, drawn("now", random, factor), gate_options());
  if (gate.tripped.empty()) return gate;
  // The second run has what had tripped alone.
  auto again = drawn("again", random, factor);
  std::erase_if(again.figures, [&](CellFigure figure) {
    figure.run_id.clear();
    return std::ranges::find(gate.tripped, key_without(figure, "")) == gate.tripped.end();
  });
  return next_look(std::move(gate), reference, std::move(again), gate_options());
}

}  // namespace

TEST_CASE("a gate fails on what is slower twice, and says it in a line") {
  Runs runs;
  runs.add("reference", 100);
  runs.add("same", 101);
  runs.add("slower", 130);
  runs.add("again-slower", 131);
  const auto reference = side_of(runs, "reference");
  CHECK(first_look(reference, side_of(runs, "same"), gate_options()).verdict() == Verdict::same);
  const Gate first = first_look(reference, side_of(runs, "slower"), gate_options());
  CHECK(first.tripped.size() == 4);
  const Gate twice = next_look(first, reference, side_of(runs, "again-slower"), gate_options());
  CHECK(twice.verdict() == Verdict::slower);
  REQUIRE(twice.findings.size() == 4);
  CHECK(twice.findings[0].what == "slower");
  CHECK_THAT(twice.findings[0].text, ContainsSubstring("allreduce 1 KiB, 2 ranks: 100 us -> 131") &&
                                         ContainsSubstring("x 1.31 [") &&
                                         ContainsSubstring("; measured twice"));
  const Gate cleared = next_look(first, reference, side_of(runs, "same"), gate_options());
  CHECK(cleared.verdict() == Verdict::same);
  REQUIRE(cleared.findings.size() == 4);
  CHECK(cleared.findings[0].what == "cleared");
}

TEST_CASE("a look that was timed otherwise clears nothing, and a third one may judge it") {
  std::mt19937_64 random(3);
  const auto timed = [](ComparisonSide side, const char* cadence) {
    for (auto& figure : side.figures) figure.cadences = {cadence};
    return side;
  };
  const auto reference = timed(drawn("reference", random, 1), "batched");
  const Gate first =
      first_look(reference, timed(drawn("now", random, 2), "batched"), gate_options());
  REQUIRE(first.tripped.size() >= 1);
  auto again = timed(drawn("again", random, 2), "isolated");
  const auto said = [](const Gate& gate, const char* what, const char* words) {
    return std::ranges::count_if(gate.findings, [&](const auto& one) {
      return one.what == what && one.text.find(words) != std::string::npos;
    });
  };
  const Gate none_alike = next_look(first, reference, again, gate_options());
  CHECK(none_alike.verdict() == Verdict::unclear);
  CHECK(said(none_alike, "unconfirmed", "; once: not judged again") ==
        static_cast<std::ptrdiff_t>(first.tripped.size()));
  CHECK(none_alike.tripped == first.tripped);
  for (auto& figure : again.figures)
    if (figure.size_bytes != 1024 << 7) figure.cadences = {"batched"};
  const Gate one_unlike = next_look(first, reference, again, gate_options());
  CHECK(one_unlike.verdict() == Verdict::unclear);
  CHECK(said(one_unlike, "unconfirmed", "; once: not judged again: it was timed otherwise") == 1);
  REQUIRE(one_unlike.tripped.size() == 1);
  const Gate third =
      next_look(one_unlike, reference, timed(drawn("third", random, 2), "batched"), gate_options());
  CHECK(third.tripped.empty());
  CHECK(said(third, "slower", "; measured twice") == 1);
  CHECK(said(third, "slower", "not judged again") == 0);
  const Gate cleared =
      next_look(one_unlike, reference, timed(drawn("third", random, 1), "batched"), gate_options());
  CHECK(cleared.verdict() == Verdict::same);
  CHECK(said(cleared, "slower", "") == 0);
  // What had a result once and has none now is no matter of timing.
  auto lost = timed(drawn("lost", random, 2), "batched");
  for (auto& figure : lost.figures)
    if (figure.size_bytes == 1024 << 7) lost.without_result.push_back({figure, "failed: a hang"});
  std::erase_if(lost.figures, [](const auto& figure) { return figure.size_bytes == 1024 << 7; });
  const Gate failed = next_look(one_unlike, reference, lost, gate_options());
  CHECK(failed.verdict() == Verdict::slower);
  CHECK(said(failed, "failed", "no result when it was measured again: failed: a hang") == 1);
  lost.without_result.front().reason = "unsupported: no GPU is here";
  const Gate unsupported = next_look(one_unlike, reference, lost, gate_options());
  CHECK(unsupported.verdict() == Verdict::slower);
  CHECK(said(unsupported, "unsupported", "when it was measured again: unsupported: no GPU") == 1);
}

TEST_CASE("a cell that the first look timed otherwise is said and looked at again") {
  std::mt19937_64 random(3);
  const auto reference = drawn("reference", random, 1);
  auto now = drawn("now", random, 2);
  now.figures[7].cadences = {"isolated"};
  const Gate first = first_look(reference, now, gate_options());
  CHECK(first.verdict() == Verdict::same);
  REQUIRE(first.tripped.size() == 1);
  REQUIRE(first.findings.size() == 1);
  CHECK(first.findings[0].what == "not judged");
  CHECK_THAT(first.findings[0].text, ContainsSubstring("cadence"));
  const Gate once = next_look(first, reference, drawn("again", random, 2), gate_options());
  REQUIRE(once.findings.size() == 1);
  CHECK(once.findings[0].what == "slower");
  CHECK(once.tripped == first.tripped);
  // With no look left, once is not twice.
  const Gate ended = closed(once);
  CHECK(ended.verdict() == Verdict::unclear);
  CHECK(ended.findings[0].what == "unconfirmed");
  CHECK(closed(first).findings[0].what == "not judged");
  const Gate twice = next_look(once, reference, drawn("third", random, 2), gate_options());
  CHECK(twice.verdict() == Verdict::slower);
  CHECK(closed(twice).verdict() == Verdict::slower);
  CHECK_THAT(twice.findings[0].text, ContainsSubstring("; measured twice"));
  const Gate same = next_look(first, reference, drawn("again", random, 1), gate_options());
  CHECK(same.verdict() == Verdict::same);
  CHECK(same.findings[0].what == "cleared");
  CHECK_THAT(same.findings[0].text, ContainsSubstring("was timed otherwise than the reference"));
}

TEST_CASE("a look that is too unsteady to tell neither clears nor fails what was slower") {
  std::mt19937_64 random(3);
  const auto reference = drawn("reference", random, 1);
  const Gate first = first_look(reference, drawn("now", random, 1.5), gate_options());
  REQUIRE(first.tripped.size() == 1);
  REQUIRE(first.verdict() == Verdict::slower);
  // Half of the launches meet something that takes four times as long.
  auto again = drawn("again", random, 1);
  for (auto& figure : again.figures)
    for (auto& launch : figure.launches) launch.median_us *= launch.block % 2 == 0 ? 1 : 4;
  const Gate open = next_look(first, reference, again, gate_options());
  CHECK(open.verdict() == Verdict::unclear);
  REQUIRE(open.findings.size() == 1);
  CHECK(open.findings[0].what == "unconfirmed");
  CHECK_THAT(open.findings[0].text, ContainsSubstring("differ too much to tell"));
  CHECK(open.outcome() ==
        "not decided: a cell was slower or failed once, and measured again could not be judged");
  CHECK(open.tripped == first.tripped);
  // JUnit says the same as the exit code.
  CHECK_THAT(comparison_junit(first.comparison), ContainsSubstring("<failure type=\"SLOWER\""));
  CHECK_THAT(comparison_junit(open.comparison), !ContainsSubstring("<failure") &&
                                                    ContainsSubstring("failures=\"0\"") &&
                                                    ContainsSubstring("differ too much to tell"));
  const Gate twice = next_look(open, reference, drawn("third", random, 1.5), gate_options());
  CHECK(twice.verdict() == Verdict::slower);
  const Gate cleared = next_look(open, reference, drawn("third", random, 1), gate_options());
  CHECK(cleared.verdict() == Verdict::same);
  CHECK(cleared.findings[0].what == "cleared");
}

TEST_CASE("what clears a cell is what the gate's verdict rests on") {
  std::mt19937_64 random(3);
  auto reference = drawn("reference", random, 1);
  auto now = drawn("now", random, 1);
  // One cell alone, first timed otherwise.
  for (auto* side : {&reference, &now}) side->figures.resize(1);
  now.figures[0].launches.resize(6);
  now.figures[0].cadences = {"isolated"};
  reference.figures[0].cadences = {"batched"};
  auto other = drawn("other", random, 1);
  // compare_sides() refuses sides of which nothing was timed alike.
  for (auto* side : {&reference, &now}) side->figures.push_back(other.figures[1]);
  now.figures[1].launches.resize(1);
  const Gate first = first_look(reference, now, gate_options());
  CHECK(first.verdict() == Verdict::unclear);
  CHECK_FALSE(first.may_hide());
  CHECK(first.outcome() == "nothing could be judged");
  REQUIRE(first.tripped.size() == 1);
  auto again = now;
  again.figures.resize(1);
  again.figures[0].cadences = {"batched"};
  const Gate second = next_look(first, reference, again, gate_options());
  CHECK(second.findings[0].what == "cleared");
  CHECK(second.verdict() == Verdict::same);
  CHECK(second.may_hide());
}

TEST_CASE("a gate that would have seen no cell a quarter slower has judged nothing") {
  std::mt19937_64 random(5);
  auto reference = drawn("reference", random, 1);
  auto now = drawn("now", random, 1);
  CHECK(first_look(reference, now, gate_options()).verdict() == Verdict::same);
  // Half of the launches of both sides meet something that takes ten times as long.
  for (auto* side : {&reference, &now})
    for (auto& figure : side->figures)
      for (auto& launch : figure.launches) launch.median_us *= launch.block % 2 == 0 ? 1 : 10;
  const Gate busy = first_look(reference, now, gate_options());
  REQUIRE(busy.may_hide());
  CHECK(*busy.may_hide() > kBlind);
  CHECK(busy.tripped.empty());
  CHECK(busy.verdict() == Verdict::unclear);
  CHECK_THAT(busy.outcome(), ContainsSubstring("nothing could be judged: each cell could be 1.25 "
                                               "times slower without showing; half of the cells"));
  for (auto& figure : now.figures) figure.launches.resize(1);
  CHECK(first_look(reference, now, gate_options()).outcome() == "nothing could be judged");
}

TEST_CASE("a gate in which nothing comes to a result any more fails") {
  std::mt19937_64 random(2);
  const auto reference = drawn("reference", random, 1);
  auto now = drawn("now", random, 1);
  for (auto& figure : now.figures) now.without_result.push_back({figure, "failed: no start"});
  now.figures.clear();
  const Gate gate = first_look(reference, now, gate_options());
  CHECK(gate.verdict() == Verdict::slower);
  CHECK(gate.outcome() == "NOT PASSED");
  REQUIRE(gate.findings.size() == 1);
  CHECK(gate.findings[0].what == "failed");
  CHECK_THAT(gate.findings[0].text,
             ContainsSubstring("20 cells") && ContainsSubstring("failed: no start"));
}

TEST_CASE("a gate names what cannot run here any more apart from what failed, and does not pass") {
  std::mt19937_64 random(2);
  const auto reference = drawn("reference", random, 1);
  auto now = drawn("now", random, 1);
  now.without_result.push_back({now.figures.back(), "unsupported: no GPU is here"});
  now.figures.pop_back();
  const Gate gate = first_look(reference, now, gate_options());
  CHECK(gate.verdict() == Verdict::slower);
  REQUIRE(gate.findings.size() == 1);
  CHECK(gate.findings[0].what == "unsupported");
  CHECK_THAT(gate.findings[0].text,
             ContainsSubstring("1 cell") && ContainsSubstring("unsupported: no GPU is here"));
  // Measured again it would be no other.
  CHECK(gate.tripped.empty());
}

TEST_CASE("a regime without a reference is said and fails nothing") {
  std::mt19937_64 random(1);
  auto reference = drawn("reference", random, 1);
  auto now = drawn("now", random, 2);
  for (auto& figure : reference.figures) figure.regimes = {"shared memory"};
  for (auto& figure : now.figures) figure.regimes = {"tcp over a bridge"};
  const Gate none = first_look(reference, now, gate_options());
  CHECK(none.verdict() == Verdict::unclear);
  CHECK(none.tripped.empty());
  REQUIRE(none.findings.size() == 1);
  CHECK(none.findings[0].what == "no reference");
  CHECK_THAT(none.findings[0].text, ContainsSubstring("in regime tcp over a bridge: 20 cells"));
  for (auto& figure : now.figures)
    if (figure.size_bytes > 4096) figure.regimes = {"shared memory"};
  const Gate part = first_look(reference, now, gate_options());
  CHECK(part.verdict() == Verdict::slower);
  CHECK(part.comparison.cells.size() == 17);
}

TEST_CASE("a gate says how much slower may pass unseen, where launches differ much") {
  std::mt19937_64 random(3);
  const Gate quiet = gate_of(random, 1);
  REQUIRE(quiet.may_hide());
  CHECK(*quiet.may_hide() < 1.1);
  auto reference = drawn("reference", random, 1);
  auto now = drawn("now", random, 1);
  std::normal_distribution<double> noise(0, 1);
  for (auto* side : {&reference, &now})
    for (auto& figure : side->figures)
      for (auto& launch : figure.launches) launch.median_us *= std::exp(noise(random));
  const Gate busy = first_look(reference, now, gate_options());
  REQUIRE(busy.may_hide());
  CHECK(*busy.may_hide() > 1.5);
  CHECK(quiet.outcome() == "passed");
  for (auto& figure : now.figures) figure.launches.resize(1);
  CHECK_FALSE(first_look(reference, now, gate_options()).may_hide());
}

TEST_CASE("of a thousand gates of a machine against itself one in a hundred fails at most") {
  std::mt19937_64 random(7);
  int failed = 0;
  for (int i = 0; i < 1000; ++i) failed += gate_of(random, 1).verdict() == Verdict::slower ? 1 : 0;
  CHECK(failed <= 10);
  int found = 0;
  for (int i = 0; i < 13; ++i) found += gate_of(random, 1.25).verdict() == Verdict::slower ? 1 : 0;
  CHECK(found == 13);
}
