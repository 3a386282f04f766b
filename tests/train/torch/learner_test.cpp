#include "train/step/learner.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "train/step/worker_step.hpp"

using namespace dynamiccl;

namespace {

constexpr std::uint64_t kSeed = 42;

TrainingSpec spec_of(TrainingModel model) {
  TrainingSpec spec;
  spec.model = model;
  spec.batch = 4;
  spec.samples = 32;
  return spec;
}

/// A learner with the one worker that trains it.
struct Trained {
  explicit Trained(const TrainingSpec& spec)
      : data(open_dataset(spec)),
        learner(make_learner(spec, kSeed, 1, std::nullopt)),
        worker(spec, *learner, *data, 0, 1, kSeed) {
    worker.set_order(worker.observe_order());
    worker.reset();
  }
  std::unique_ptr<Dataset> data;
  std::unique_ptr<Learner> learner;
  TrainingWorker worker;
};

/// Share of some plain surfaces, each of its own colour, that the model takes for each kind in
/// evaluation mode.
std::vector<double> guesses(Trained& trained) {
  Batch batch;
  for (int surface = 0; surface < 27; ++surface) {
    trained.data->add_to(batch, 0);
    auto pixel = batch.pixels.end() - 3 * batch.side * batch.side;
    for (const int channel : {surface % 3, surface / 3 % 3, surface / 9})
      pixel = std::fill_n(pixel, batch.side * batch.side, 20.0F * static_cast<float>(channel - 1));
  }
  std::vector<double> shares;
  for (std::int64_t kind = 0; kind < 10; ++kind) {
    batch.labels.assign(batch.labels.size(), kind);
    shares.push_back(trained.learner->accuracy(batch));
  }
  return shares;
}

}  // namespace

TEST_CASE("training starts anew with the model's statistics as they were", "[a-12][d-56]") {
  // Weights that stay: only BatchNorm's running statistics can change what is guessed.
  TrainingSpec spec = spec_of(TrainingModel::resnet18);
  spec.learning_rate = 0;
  Trained trained(spec);
  const auto before = guesses(trained);
  for (int i = 0; i < 8; ++i) trained.worker.step_of_all();
  CHECK(guesses(trained) != before);
  trained.worker.reset();
  CHECK(guesses(trained) == before);
}

TEST_CASE("a loss is that of the last batch", "[a-12]") {
  Trained trained(spec_of(TrainingModel::mlp));
  Learner& learner = *trained.learner;
  learner.on_gradient([](std::size_t, const float*) {});
  const auto loss_of = [&](float pixel) {
    Batch batch;
    for (std::size_t i = 0; i < 4; ++i) trained.data->add_to(batch, i);
    for (float& value : batch.pixels) value = pixel;
    learner.load(batch);
    for (int stage = 0; stage < learner.stages(); ++stage) learner.forward(stage);
    learner.compute_loss();
    learner.memory().complete();
    const double loss = learner.loss();
    learner.backward();
    return loss;
  };
  const double dark = loss_of(0);
  CHECK(std::abs(dark - std::log(10)) < 0.1);
  const double bright = loss_of(50);
  CHECK(bright > 2 * dark);
  CHECK(loss_of(0) == dark);
}

TEST_CASE("a model has the parameters that its facts say", "[d-40]") {
  const auto model = GENERATE(TrainingModel::mlp, TrainingModel::cnn, TrainingModel::cnn_small,
                              TrainingModel::resnet18);
  const Trained trained(spec_of(model));
  CHECK(trained.worker.gradient_bytes() == 4 * facts_of(model, 1).parameters);
}
