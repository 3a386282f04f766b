#include "orchestrator/tune/agent_comparison.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <map>
#include <tuple>

#include "orchestrator/tune/grid_samples.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Two tasks count; each seed is faster by `log_faster` in sum.
ReplayScore score(const std::string& agent, const std::vector<double>& log_faster, double to_95,
                  int slower = 0) {
  ReplayScore result;
  result.agent = agent;
  result.tasks = 2;
  result.seeds = static_cast<int>(log_faster.size());
  result.oracle_log_faster = 1;
  for (const double one : log_faster) result.by_seed.push_back({40, one, slower, {to_95, to_95}});
  return result;
}

}  // namespace

TEST_CASE("of agents that seeds do not tell apart the quickest is best") {
  const std::vector<ReplayScore> part{
      score("most", {0.80, 0.90, 0.85, 0.90}, 9), score("quick", {0.82, 0.88, 0.86, 0.88}, 4),
      score("quickest", {0.40, 0.42, 0.41, 0.40}, 1), score("beside", {0.99, 0.99, 0.99, 0.99}, 1)};
  const std::vector<std::string> candidates{"most", "quick", "quickest"};
  const AgentComparison compared = compare_agents({part}, candidates);
  CHECK(compared.best == "quick");
  CHECK(compared.tasks == 2);
  CHECK(compared.oracle_time == Catch::Approx(std::exp(-0.5)));
  CHECK(compared.rows[0].time.value == Catch::Approx(std::exp(-0.43125)));
  CHECK(compared.rows[0].time.low < std::exp(-0.43125));
  CHECK(compared.rows[1].as_good);
  CHECK_FALSE(compared.rows[2].as_good);
  CHECK(compared.rows[2].behind.low > 1);
  CHECK_THAT(comparison_markdown(compared), ContainsSubstring("| quick | 0.651 ["));

  // Several replays are one comparison: sums of the same seed.
  const AgentComparison both = compare_agents({part, part}, candidates);
  CHECK(both.tasks == 4);
  CHECK(both.rows[0].time.value == Catch::Approx(std::exp(-0.43125)));
  CHECK(both.rows[0].evaluations == 80);
}

TEST_CASE("an agent that half of the tasks never satisfy has no number of evaluations") {
  const std::vector<ReplayScore> part{score("never", {0.5, 0.5}, INFINITY)};
  const AgentComparison compared = compare_agents({part}, {"never"});
  CHECK(std::isinf(compared.rows[0].to_95.value));
  CHECK(compared.rows[0].reached_95 == 0);
  CHECK_THAT(comparison_markdown(compared), ContainsSubstring("never [never, never]"));
  CHECK(compare_agents({}, {"never"}).best.empty());
}

TEST_CASE("one agent is held against another seed by seed, and the answer may be open") {
  // Seeds differ by more than the two agents do: only pairs of the same seed tell them apart.
  const std::vector<ReplayScore> part{score("a", {0.20, 0.60, 1.00, 1.40}, 3),
                                      score("b", {0.10, 0.49, 0.91, 1.30}, 6),
                                      score("never", {0.1, 0.9, 0.5, 1.2}, INFINITY)};
  const AgentPair pair = compare_pair({part, part}, "a", "b");
  CHECK(pair.time.value == Catch::Approx(std::exp(-0.05)));
  CHECK(answer_of(pair.time, 1) == BarAnswer::reached);
  CHECK(answer_of(compare_pair({part}, "b", "a").time, 1) == BarAnswer::missed);
  CHECK(answer_of(compare_pair({part}, "a", "never").time, 1) == BarAnswer::open);
  REQUIRE(pair.to_95);
  CHECK(pair.to_95->value == Catch::Approx(0.5));
  CHECK(answer_of(*pair.to_95, 0.5) == BarAnswer::reached);
  CHECK(answer_of(*compare_pair({part}, "b", "a").to_95, 0.5) == BarAnswer::missed);
  CHECK_FALSE(compare_pair({part}, "a", "never").to_95);
  CHECK_FALSE(compare_pair({part}, "never", "a").to_95);
  CHECK_THROWS_WITH(compare_pair({part}, "a", "other"), ContainsSubstring("other"));
}

TEST_CASE("networks are samples: a group's interval is over networks, not over their seeds") {
  const std::vector<ReplayScore> part{score("t1", {0.8, 1.2}, 3), score("t2", {1.0, 1.4}, 3),
                                      score("t3", {0.9, 1.3}, 3), score("u1", {0.2, 0.6}, 3),
                                      score("u2", {0.4, 0.8}, 3), score("bandit", {0.3, 0.3}, 3)};
  // Means of ln over two tasks: 0.5, 0.6, 0.55 against 0.2, 0.3; the bandit's 0.15.
  const SeedFigure trained = compare_group({part}, {"t1", "t2", "t3"}, "bandit");
  CHECK(trained.value == Catch::Approx(std::exp(-0.40)));
  CHECK(trained.high < 0.8);
  const SeedFigure apart = compare_groups({part}, {"t1", "t2", "t3"}, {"u1", "u2"});
  CHECK(apart.value == Catch::Approx(std::exp(-0.30)));
  CHECK(apart.low < apart.value);
  // Welch's interval by hand: sd 0.05 of three and 0.0707 of two; 1.55 degrees of freedom.
  CHECK(apart.high > 0.9);
  CHECK(answer_of(compare_groups({part}, {"u1", "u2"}, {"t1", "t2", "t3"}), 0.5) ==
        BarAnswer::missed);
  // One network alone has no interval.
  const SeedFigure alone = compare_groups({part}, {"t1"}, {"u1"});
  CHECK(alone.low == alone.high);
}

TEST_CASE("an ordinary run over settings is something that agents can search", "[E-136]") {
  const testing::ScratchFolder folder;
  const std::string path = folder.file("runs.sqlite");
  auto stored = testing::make_plan("grid", {"bare-metal"}, {"allreduce"}, {1, 2, 3, 4, 5});
  const std::vector<std::tuple<std::string, std::string, double>> cells{
      {"library", "{}", 100},
      {"library", R"({"min_ctas": "16"})", 60},
      {"library", R"({"min_ctas": "4"})", 80},
      {"ring/ll", R"({"min_ctas": "4"})", 120},
      {"library", "{}", 50}};
  REQUIRE(stored.cells.size() == cells.size());
  std::map<std::string, double> us;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    auto& cell = stored.cells[i];
    std::tie(cell.algorithm, cell.knobs_json, us[cell.id]) = cells[i];
    cell.size_bytes = i == 4 ? 4096 : 1024;  // the last is work of its own, with one setting alone
  }
  stored.run.name = "grid-demo";
  {
    Store store(path);
    store.begin_run(stored.run, stored.groups, stored.cells);
    for (int block = 0; block < 2; ++block)
      testing::store_launch(store, stored, stored.groups[0], block,
                            [&](const CellInfo& cell, int, int) { return us.at(cell.id) + block; });
  }
  const Reader reader(path);
  const auto tasks = load_grid(reader, find_run(reader, "grid-demo"));
  REQUIRE(tasks.size() == 1);
  const ActionSpace& space = *tasks[0].search.task.space;
  REQUIRE(space.arms().size() == 4);
  CHECK(space.knobs()[0].name == "algorithm");  // implementation first
  std::map<std::string, std::vector<double>> by_text;
  for (std::size_t a = 0; a < 4; ++a) by_text[space.text(space.arms()[a])] = tasks[0].arm_us[a];
  CHECK(tasks[0].arm_us[0] == std::vector<double>{100, 101});
  CHECK(tasks[0].arm_us[1] == std::vector<double>{80, 81});  // 4 before 16: numbers, not words
  CHECK(tasks[0].arm_us[2] == std::vector<double>{60, 61});
  CHECK(tasks[0].arm_us[3] == std::vector<double>{120, 121});
  CHECK(tasks[0].arm_launch[3].size() == 2);

  ReplayOptions options;
  options.agents = {"exhaustive"};
  options.seeds = 1;
  options.parts = 2;
  CHECK(replay(tasks, options, nullptr)[0].choices[0][0] == 2);
  CHECK_THROWS_WITH(find_run(reader, "other"), ContainsSubstring("holds no run of experiment"));
}
