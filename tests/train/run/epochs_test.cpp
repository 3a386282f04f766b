// Passes over the data in parts, without a model: how many rounds they have, and who looks when.
#include "train/run/epochs.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "tests/train/idle_communicator.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;

namespace {

TrainingSpec passes(int epochs, int looks) {
  TrainingSpec spec;
  spec.epochs = epochs;
  spec.looks = looks;
  return spec;
}

/// A lone rank that notes what is asked of it.
struct Noted {
  /// @param lengths of the rounds, the last one again and again
  explicit Noted(TrainingSpec cell, std::vector<int> lengths = {1})
      : spec(std::move(cell)), round_lengths(std::move(lengths)) {}
  int run(std::uint64_t steps_per_epoch) {
    EpochTrainer trainer;
    trainer.train = [&](int count) {
      for (int i = 0; i < count; ++i) steps += next();
      rounds += count;
      return 2.0;
    };
    trainer.next_steps = [&] { return next_of(rounds); };
    trainer.switch_over = [&] {
      switched_at = rounds;
      round_lengths = {4};
    };
    trainer.look = [&](int so_far) { looks.push_back(so_far); };
    trainer.accuracy = [&] { return 0.1 * static_cast<double>(looks.size()); };
    IdleCommunicator alone(0, 1);
    return run_epochs(alone, spec, steps_per_epoch, trainer, figures);
  }
  [[nodiscard]] int next_of(int round) const {
    const auto at = static_cast<std::size_t>(round);
    return at < round_lengths.size() ? round_lengths[at] : round_lengths.back();
  }
  int next() const { return next_of(rounds); }

  TrainingSpec spec;
  std::vector<int> round_lengths;
  TrainingFigures figures;
  int steps = 0;
  int rounds = 0;
  int switched_at = -1;
  std::vector<int> looks;
};

}  // namespace

TEST_CASE("looks that do not divide an epoch lose no steps", "[d-98]") {
  Noted quarters(passes(2, 4));
  CHECK(quarters.run(10) == 20);
  CHECK(quarters.looks == std::vector<int>{2, 5, 7, 10, 12, 15, 17, 20});
  CHECK(quarters.figures.details.at("trained_us") == 40);
  CHECK(quarters.figures.details.at("epochs") == 2);
  // Rounds of three steps: what fills none of an epoch is made good in the next one.
  Noted local(passes(3, 2), {3});
  CHECK(local.run(10) == 10);
  CHECK(local.steps == 30);
  // More looks than steps: each step is looked at once.
  Noted often(passes(1, 25));
  CHECK(often.run(10) == 10);
  CHECK(often.looks.size() == 10);
  // Rounds that are longer than all there is: one.
  Noted longer(passes(1, 1), {50});
  CHECK(longer.run(10) == 1);
}

TEST_CASE("more looks than an int can count are looked at", "[d-98]") {
  TrainingSpec spec = passes(65'536, 32'768);
  spec.target = 0.05;
  Noted noted(spec);
  CHECK(noted.run(32'768) == 1);
  CHECK(noted.looks.size() == 1);
}

TEST_CASE("epochs end with the look that finds the target", "[a-12]") {
  TrainingSpec spec = passes(4, 3);
  spec.target = 0.5;
  Noted noted(spec);
  CHECK(noted.run(10) == 16);
  CHECK(noted.figures.details.at("target_reached") == true);
  CHECK(noted.figures.details.at("epochs") == 2);
  CHECK(noted.figures.details.at("accuracies").back()[0] == 16);
}

TEST_CASE("rounds that shorten, and a switch at an epoch's end, fill epochs by their steps",
          "[d-34][d-28]") {
  TrainingSpec shortening = passes(1, 2);
  shortening.synchronisation = Synchronisation::adacomm;
  Noted adapted(shortening, {4, 2, 1});
  CHECK(adapted.run(10) == 6);
  CHECK(adapted.steps == 10);
  TrainingSpec spec = passes(3, 1);
  spec.switch_to = Synchronisation::local;
  spec.local_steps = 4;
  Noted switched(spec);
  CHECK(switched.run(10) == 15);
  CHECK(switched.switched_at == 10);
  CHECK(switched.steps == 30);
  const auto& told = switched.figures.details.at("switched");
  CHECK(told.at("from") == "bsp");
  CHECK(told.at("to") == "local");
  CHECK(told.at("epoch") == 1);
  CHECK(told.at("worker_steps") == 10);
}
