#include "train/plan/trial.hpp"

#include <catch2/catch_test_macros.hpp>
#include <random>

using namespace dynamiccl;

namespace {

/// Candidates whose steps take `true_us`, the first of a round twice that, with noise.
struct Trainer {
  std::vector<double> true_us;
  double noise = 0;
  std::mt19937 random{5};
  int steps = 0;
  double spent_us = 0;

  std::vector<double> operator()(std::size_t candidate, int count) {
    std::normal_distribution<double> normal;
    std::vector<double> times;
    for (int i = 0; i < count; ++i)
      times.push_back((i == 0 ? 2 : 1) * true_us[candidate] * (1 + noise * normal(random)));
    for (const double us : times) spent_us += us;
    steps += count;
    return times;
  }
};

}  // namespace

TEST_CASE("a trial corrects what was expected", "[d-49][d-50][dear]") {
  Trainer trainer{{110, 90, 100, 105}};
  const auto result = choose_by_trial({90, 100, 101, 102}, 1e9, std::ref(trainer));
  CHECK(result.chosen == 1);
  REQUIRE(result.tried.size() == 4);
  // Those that went on have been trained the longest, the first step of each round never counts.
  CHECK(result.tried[1].step_us.size() > result.tried[3].step_us.size());
  for (const auto& run : result.tried)
    for (const double us : run.step_us) CHECK(us == trainer.true_us[run.candidate]);
}

TEST_CASE("a trial leaves out what is expected to be far slower, but the second best", "[d-50]") {
  Trainer trainer{{100, 1, 95}};
  const auto result = choose_by_trial({100, 200, 101}, 1e9, std::ref(trainer));
  CHECK(result.chosen == 2);
  CHECK(result.tried.size() == 2);
  CHECK(choose_by_trial({100, 200, 190}, 1e9, std::ref(trainer)).chosen == 2);
}

TEST_CASE("a trial keeps what may be as fast as what is expected to be the fastest", "[d-48]") {
  // The first one's step may be anything up to three times as long; without that two are tried.
  Trainer trainer{{250, 190, 180, 270}};
  const std::vector<Expectation> unsure{{100, 300}, {200, 200}, {201, 201}, {270, 280}};
  const auto result = choose_by_trial(unsure, 1e9, std::ref(trainer));
  CHECK(result.chosen == 2);
  CHECK(result.tried.size() == 3);
  CHECK(choose_by_trial({100, 200, 201, 270}, 1e9, std::ref(trainer)).tried.size() == 2);
  // What a trial may take is counted by what its steps may take; without one the middle decides.
  CHECK(choose_by_trial({{100, 320}, {200, 200}}, 1e3, std::ref(trainer)).chosen == 1);
}

TEST_CASE("a trial takes no longer than it may", "[d-50]") {
  const std::vector<Expectation> expected(10, 100.0);
  for (const double allowed_us : {0.0, 500.0, 1000.0, 2000.0, 5000.0, 1e5}) {
    Trainer trainer{std::vector<double>(10, 100.0)};
    const auto result = choose_by_trial(expected, allowed_us, std::ref(trainer));
    INFO(allowed_us << " us allowed, " << result.tried.size() << " tried");
    CHECK(trainer.steps * 100.0 <= allowed_us);
    CHECK(result.chosen == 0);
    CHECK((result.tried.size() == 10) == (allowed_us > 1e4));
  }
  Trainer two{{100, 1000}};
  CHECK(choose_by_trial({100, 1000}, 1000, std::ref(two)).tried.empty());
  CHECK(two.steps == 0);
  Trainer trainer{{100}};
  CHECK(choose_by_trial({100}, 1e9, std::ref(trainer)).chosen == 0);
  CHECK(trainer.steps == 0);
}

TEST_CASE("a trial finds what is a tenth faster behind noise of a twentieth", "[d-50]") {
  Trainer trainer{{100, 90, 100, 100, 100}, 0.05};
  int found = 0;
  for (int i = 0; i < 1000; ++i)
    found += choose_by_trial({98, 100, 99, 97, 101}, 1e9, std::ref(trainer)).chosen == 1 ? 1 : 0;
  CHECK(found >= 900);
}
