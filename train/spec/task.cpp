#include <fmt/format.h>

#include "core/vocabulary/units.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

constexpr int kMostBatch = 1 << 20;

/// Why a worker cannot keep what `oracle` compares: the kernel would kill it half-way.
std::string oracle_contradiction(const TrainingSpec& spec) {
  constexpr std::uint64_t kMostKept = std::uint64_t{8} << 30;
  const std::uint64_t copy = facts_of(spec.model, spec.sequence).parameters * sizeof(float);
  const std::uint64_t copies = oracle_copies(spec);
  if (copies <= kMostKept / copy) return "";
  return fmt::format(
      "oracle = {} with model = \"{}\": each worker would keep {} copies of {:.1f} MiB of weights "
      "in host memory, of which {} are taken at most; take a smaller oracle, or a smaller model "
      "for "
      "the check",
      spec.oracle, name_of(spec.model), copies, static_cast<double>(copy) / (1 << 20),
      format_bytes(Bytes(kMostKept)));
}

std::string task_misfit(const TrainingSpec& spec) {
  if (auto reason = oracle_contradiction(spec); !reason.empty()) return reason;
  if (spec.target > 0 && spec.epochs == 0)
    return "target without epochs: the accuracy is looked at after each; say at most how many";
  if (spec.looks > 1 && spec.epochs == 0)
    return "looks without epochs: they are parts of an epoch; say at most how many epochs";
  if (spec.steps > 0 && spec.epochs > 0)
    return "steps and epochs: each says how much is trained; leave one out";
  return "";
}

using Spec = TrainingSpec;
constexpr SettingRow kTaskRows[] = {
    setting<&Spec::model>("model", "what is trained"),
    setting<&Spec::batch>("batch", "samples per worker and step", 1, kMostBatch),
    setting<&Spec::sequence>("sequence", "tokens per sample of a transformer", 1, kPositions),
    setting<&Spec::data>("data",
                         "generated, generated-hard (faint patterns, a quarter of the "
                         "labels wrong), or a folder with CIFAR-10 binary or IDX files"),
    setting<&Spec::precision>("precision",
                              "what a GPU computes products in; tf32 and bf16 on GPUs only"),
    setting<&Spec::oracle>("oracle",
                           "steps compared with one process that computes every worker; 0: "
                           "ranks are compared with each other",
                           0),
    setting<&Spec::samples>("samples", "of one pass over generated data", 1),
    setting<&Spec::evaluate>("evaluate",
                             "held-out samples for the accuracy; 0: none, with epochs all", 0),
    setting<&Spec::steps>("steps", "exactly so many measured; 0: as the protocol says", 0),
    setting<&Spec::epochs>(
        "epochs",
        "passes over the data at most, the accuracy taken after each; 0: steps are counted", 0),
    setting<&Spec::target>("target", "accuracy, 0 to 1, at which epochs end; 0: all of them", 0, 1),
    setting<&Spec::looks>("looks",
                          "times in an epoch that the accuracy is taken, in equal parts of it", 1)};

}  // namespace

SettingPart task_part() { return {kTaskRows, task_misfit, /*of_task=*/true}; }

bool is_generated(const std::string& data) {
  return data == kGeneratedData || data == kGeneratedHardData;
}

std::uint64_t oracle_copies(const TrainingSpec& spec) {
  if (spec.oracle == 0) return 0;
  const auto rounds = static_cast<std::uint64_t>(spec.oracle) * (spec.switch_to ? 2 : 1);
  // Of plain steps the weights before each and after the last; of others the momentum too, and what
  // both of them are compared with.
  const bool plainly = trains_as_one(spec) && spec.synchronisation == Synchronisation::bsp;
  return plainly ? rounds + 1 : 4 * rounds + 2;
}

}  // namespace dynamiccl
