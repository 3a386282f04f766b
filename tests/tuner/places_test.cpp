#include "tuner/agents/places.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "tuner/agents/kernel_means.hpp"

using namespace dynamiccl;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

namespace {

Task two_knobs(int log2_size) {
  std::vector<Knob> knobs{{.name = "algorithm",
                           .role = KnobRole::implementation,
                           .target = "algorithm",
                           .values = {"default", "ring", "tree"}},
                          {.name = "keep",
                           .role = KnobRole::implementation,
                           .scope = KnobScope::launch,
                           .target = "malloc.keep",
                           .values = {"default", "1"}}};
  Task task;
  task.space = std::make_shared<const ActionSpace>(
      "fake", std::move(knobs), [](const ActionSpace&, const Action&) { return true; });
  task.key = {"here", {.bin = {log2_size}, .group_size = 2, .backend = Backend::mpich}};
  return task;
}

PlacedCell placed(int log2_size, bool shared, std::map<std::string, double> log_ratio) {
  return {"there", shared, two_knobs(log2_size).key.task, std::move(log_ratio)};
}

std::size_t arm(const Task& task, std::uint8_t algorithm, std::uint8_t keep) {
  return task.space->find(Action{algorithm, keep}).value();
}

}  // namespace

TEST_CASE("settings are ranked by places that are near, and unknown ones stay unknown") {
  const Task task = two_knobs(20);
  const std::vector<PlacedCell> cells{
      placed(20, true, {{"ring", -1.0}, {"library malloc.keep=1", -0.4}}),
      placed(20, false, {{"ring", 0.5}}),   // ranks reach each other otherwise: less weight
      placed(10, true, {{"tree", -3.0}})};  // ten doublings away: none
  const PlaceRanking ranking = rank_by_places(task, true, cells);
  CHECK(ranking.log_ratio[0] == 0.0);
  CHECK(ranking.log_ratio[arm(task, 1, 0)] == Approx((-1.0 + 0.3 * 0.5) / 1.3));
  CHECK(ranking.log_ratio[arm(task, 0, 1)] == Approx(-0.4));
  CHECK(ranking.weight[arm(task, 1, 0)] == Approx(1.3));
  CHECK(ranking.weight[arm(task, 2, 0)] == 0);
  CHECK(ranking.weight[arm(task, 1, 1)] == 0);
  CHECK(ranking.places == std::set<std::string>{"there"});
  Task other = two_knobs(20);
  other.key.task.collective = Collective::broadcast;
  CHECK(!start_from(other, rank_by_places(other, true, cells)));
  CHECK(!is_placed(other));
}

TEST_CASE("one place counts as much as what a search expects by itself, several more") {
  const auto expected = [](std::size_t places) {
    Task task = two_knobs(20);
    const std::vector<PlacedCell> cells(places, placed(20, true, {{"ring", -0.6}}));
    REQUIRE(start_from(task, rank_by_places(task, true, cells)));
    CHECK(task.prior_log_us[0] == 0);
    return task.prior_log_us[arm(task, 1, 0)];
  };
  const Task fresh = two_knobs(20);
  const double before = expected_before_looks(fresh)[arm(fresh, 1, 0)];
  CHECK(before > 0);
  CHECK(expected(1) == Approx((-0.6 + before) / 2));
  CHECK(expected(3) == Approx((3 * -0.6 + before) / 4));
}

TEST_CASE("a search begins with what was best elsewhere, and looks take it back") {
  Task task = two_knobs(20);
  REQUIRE(start_from(task, rank_by_places(task, true, {placed(20, true, {{"ring", -0.7}})})));
  KernelMeans means(AgentOptions{});
  CHECK(means.recommend(task) == arm(task, 1, 0));
  // Of what was measured nowhere another algorithm is expected to be slower, as ever.
  CHECK(task.prior_log_us[arm(task, 2, 0)] > 0);
  for (int look = 0; look < 2; ++look) {
    means.learn(task, arm(task, 1, 0), {.ok = true, .time = Micros{300}});
    means.learn(task, 0, {.ok = true, .time = Micros{100}});
  }
  CHECK(means.recommend(task) == 0);
}

TEST_CASE("a file of places is read as it was written, and anything else is refused") {
  const auto path = std::filesystem::temp_directory_path() / "dynamiccl_places_test.tsv";
  const std::vector<PlacedCell> cells{
      placed(20, false, {{"ring", -0.7}, {"library malloc.keep=1", 0.25}})};
  std::ofstream(path) << places_text(cells);
  const auto read = read_places(path.string());
  REQUIRE(read.size() == 1);
  CHECK(read[0].place == "there");
  CHECK(!read[0].shared_memory);
  CHECK(read[0].key == cells[0].key);
  CHECK(read[0].log_ratio == cells[0].log_ratio);
  std::ofstream(path) << "something else\n";
  CHECK_THROWS_WITH(read_places(path.string()), ContainsSubstring("no file of measured places"));
  std::ofstream(path) << "dynamiccl-places 1\nthere\tshared\t" << cells[0].key.text()
                      << "\tring=fast\n";
  CHECK_THROWS_WITH(read_places(path.string()),
                    ContainsSubstring("places_test.tsv:2: \"fast\" is no number"));
  std::filesystem::remove(path);
}

TEST_CASE("the places that come along speak of the libraries whose searches they help") {
  const auto cells = read_places(DYNAMICCL_SOURCE_DIR "/tuner/places/measured.tsv");
  const auto speak_of = [&](Backend backend) {
    return std::any_of(cells.begin(), cells.end(),
                       [&](const PlacedCell& cell) { return cell.key.backend == backend; });
  };
  CHECK(speak_of(Backend::mpich));
  CHECK(speak_of(Backend::openmpi));
  CHECK(!speak_of(Backend::gloo));  // no gain: reports/measured/agents-2026-11/README.md
  CHECK(!speak_of(Backend::nccl));
}
