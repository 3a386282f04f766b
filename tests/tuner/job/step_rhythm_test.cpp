// Loops as training programs make them, with the noise of a host that others use too. The step
// that the rhythm finds is held against the loop's own clock.
#include "tuner/job/step_rhythm.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>

#include "core/statistics/statistics.hpp"

using namespace dynamiccl;

namespace {

/// A job that makes calls and keeps its own clock.
struct Loop {
  std::vector<RhythmCall> calls;
  std::vector<double> own_us;  ///< of the steps, by the job's own clock
  double now_us = 1e6;
  std::mt19937 random{3};
  std::lognormal_distribution<double> noise{0, 0.05};

  void work(double us) { now_us += us * noise(random); }
  void call(std::uint32_t kind) {
    now_us += 20 * noise(random);
    calls.push_back({static_cast<std::int64_t>(now_us * 1e3), kind});
  }
  void start_up() {
    for (std::uint32_t i = 0; i < 37; ++i) call(100 + i % 7);
    // DDP's first step has other buckets than all others.
    for (std::uint32_t i = 0; i < 5; ++i) call(200 + i);
  }
  template <class Step>
  void run(int steps, Step&& step) {
    for (int i = 0; i < steps; ++i) {
      const double begin = now_us;
      step(i);
      own_us.push_back(now_us - begin);
    }
  }
  void check(std::size_t pattern) const {
    const Rhythm rhythm = find_rhythm(calls);
    INFO(rhythm.reason << " pattern " << rhythm.pattern.size());
    REQUIRE(rhythm.found());
    CHECK(rhythm.pattern.size() == pattern);
    const double own = median(own_us);
    INFO("rhythm " << rhythm.step.count() << " us, own clock " << own << " us");
    CHECK(std::abs(rhythm.step.count() / own - 1) < 0.02);
  }
};

void buckets(Loop& loop, int count) {
  for (int b = 0; b < count; ++b) {
    loop.work(900);
    loop.call(b == 0 ? 1 : b + 1 == count ? 3 : 2);
  }
}

}  // namespace

TEST_CASE("a plain DDP loop's step is found from its calls", "[E-105]") {
  Loop loop;
  loop.start_up();
  loop.run(40, [&](int) {
    loop.work(6000);
    buckets(loop, 9);
    loop.work(2000);
  });
  loop.check(9);
}

TEST_CASE("accumulation under no_sync: micro-batches that are silent belong to the step",
          "[E-105]") {
  Loop loop;
  loop.start_up();
  loop.run(30, [&](int) {
    for (int micro = 0; micro < 3; ++micro) loop.work(14000);
    loop.work(6000);
    buckets(loop, 7);
    loop.work(2000);
  });
  loop.check(7);
}

TEST_CASE("two communicators that take turns make one step", "[E-105]") {
  Loop loop;
  loop.start_up();
  loop.run(40, [&](int) {
    for (std::uint32_t layer = 0; layer < 6; ++layer) {
      loop.work(700);
      loop.call(11);  // tensor parallel, forward
    }
    for (std::uint32_t layer = 0; layer < 6; ++layer) {
      loop.work(1200);
      loop.call(11);
      if (layer % 2 == 1) loop.call(21 + layer / 2);  // data parallel
    }
    loop.work(1500);
  });
  loop.check(15);
}

TEST_CASE("an evaluation every 50 steps is no step and lengthens none", "[E-105]") {
  Loop loop;
  loop.start_up();
  loop.run(160, [&](int step) {
    loop.work(5000);
    buckets(loop, 5);
    loop.work(1000);
    if (step % 50 == 49)
      for (int batch = 0; batch < 20; ++batch) {
        loop.work(3000);
        loop.call(31);
      }
  });
  loop.check(5);
  const Rhythm rhythm = find_rhythm(loop.calls);
  CHECK(rhythm.outside >= 3 * 20);
  CHECK(rhythm.timed >= 150);
}

TEST_CASE("FSDP's all-gathers and reduce-scatters: the step, not the layer", "[E-105]") {
  Loop loop;
  loop.start_up();
  loop.run(12, [&](int) {
    for (int layer = 0; layer < 24; ++layer) {
      loop.call(41);
      loop.work(500);
    }
    for (int layer = 0; layer < 24; ++layer) {
      loop.call(41);
      loop.work(900);
      loop.call(42);
    }
    loop.work(4000);
  });
  loop.check(72);
}

TEST_CASE("equal buckets: pauses tell where a step begins", "[E-105]") {
  Loop loop;
  loop.run(40, [&](int) {
    loop.work(9000);
    for (int b = 0; b < 6; ++b) {
      loop.work(400);
      loop.call(1);
    }
  });
  loop.check(6);
  CHECK(find_rhythm(loop.calls).by_pauses);
}

TEST_CASE("micro-batches that all communicate: the period is the micro-batch", "[E-105]") {
  Loop loop;
  loop.run(80, [&](int micro) {
    loop.work(9000);
    buckets(loop, 4);
    if (micro % 4 == 3) loop.work(800);
  });
  loop.check(4);
}

TEST_CASE("calls without a rhythm, and too few of them, have no step", "[E-105]") {
  Loop loop;
  std::mt19937 random{11};
  loop.run(400, [&](int) {
    loop.work(100);
    loop.call(static_cast<std::uint32_t>(random() % 23));
  });
  const Rhythm rhythm = find_rhythm(loop.calls);
  CHECK_FALSE(rhythm.found());
  CHECK(rhythm.reason.find("repeat no sequence") != std::string::npos);
  CHECK(find_rhythm({}).reason.find("too few") != std::string::npos);
  const std::vector<RhythmCall> three{{1, 1}, {2, 1}, {3, 1}};
  CHECK_FALSE(find_rhythm(three).found());
}

TEST_CASE("steps that a host starts in bursts have their mean time", "[E-105]") {
  // The host runs ahead of the GPU: pairs of steps are started together.
  std::vector<RhythmCall> calls;
  for (std::int64_t step = 0; step < 60; ++step)
    for (std::int64_t b = 0; b < 3; ++b)
      calls.push_back({(step / 2) * 20'000'000 + (step % 2) * 1'000'000 + b * 100'000,
                       static_cast<std::uint32_t>(b)});
  const Rhythm rhythm = find_rhythm(calls);
  REQUIRE(rhythm.found());
  CHECK(std::abs(rhythm.step.count() / 10'000 - 1) < 0.03);
}
