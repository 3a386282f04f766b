#include <fmt/format.h>

#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

/// Why the length of a step is not set layer by layer, or not from step to step.
std::string rate_contradiction(const TrainingSpec& spec) {
  const char* key = spec.lars > 0 ? "lars" : spec.rate_warmup > 0 ? "rate_warmup" : nullptr;
  if (key == nullptr) return "";
  if (spec.optimizer == OptimizerPlace::server || is_asynchronous(spec.synchronisation) ||
      spec.switch_to)
    return fmt::format(
        "{} where a server applies gradients (partial): servers hold parts of layers and go by no "
        "worker's steps; take optimizer = \"worker\" with bsp",
        key);
  if (spec.synchronisation == Synchronisation::lag)
    return fmt::format(
        "{} with lag (partial): its rule divides by one learning rate; leave one out", key);
  return "";
}

using Spec = TrainingSpec;
constexpr SettingRow kOptimizerRows[] = {
    setting<&Spec::learning_rate>("learning_rate", "of SGD"),
    setting<&Spec::momentum>("momentum", "of SGD", 0, kBelowOne, "a number from 0, below 1"),
    setting<&Spec::lars>("lars",
                         "LARS' trust coefficient: part of a matrix' norm that a step is "
                         "long, times the learning rate; 0: none"),
    setting<&Spec::rate_warmup>(
        "rate_warmup", "steps in which the learning rate rises to its value, linearly", 0)};

}  // namespace

SettingPart optimizer_part() { return {kOptimizerRows, rate_contradiction}; }

double rate_at(const TrainingSpec& spec, std::uint64_t step) {
  const auto rising = static_cast<std::uint64_t>(spec.rate_warmup);
  if (step >= rising) return spec.learning_rate;
  return spec.learning_rate * static_cast<double>(step + 1) / static_cast<double>(rising);
}

double optimizer_momentum(const TrainingSpec& spec) {
  return codec_row(spec.compression).momentum ? 0 : spec.momentum;
}

}  // namespace dynamiccl
