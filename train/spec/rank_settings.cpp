#include <fmt/format.h>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/digest.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

constexpr int kMostThreads = 4096;

/// Why there is no library's all-reduce in each step that could be set.
std::string tuner_contradiction(const TrainingSpec& spec) {
  if (!is_tuned(spec)) return "";
  const TrainingMethodRow& row = method_row(spec.method);
  std::string why;
  if (row.engine) why = "sums by an engine that calls the library itself";
  if (row.sums == SumPlace::server) why = "sums at a server by messages of our own";
  if (row.sums == SumPlace::neighbours) why = "averages with neighbours by messages of our own";
  if (row.split) why = "sums in halves around a ring of our own";
  if (spec.packing != Packing::none)
    why = "packed values are summed by a ring of our own or next to it";
  if (spec.compression != Codec::none) why = "encoded values go by calls of their own";
  if (spec.synchronisation != Synchronisation::bsp || spec.switch_to)
    why = "without BSP there is no all-reduce of gradients in each step";
  if (why.empty()) return "";
  return fmt::format(
      "tuner = \"{}\" with {}: {}, so that there is no call of the library to set; take bsp-a2a, "
      "wfbp-a2a, mg-wfbp or bytescheduler-a2a, plain and bsp",
      spec.tuner, row.name, why);
}

using Spec = TrainingSpec;
constexpr SettingRow kRankRows[] = {
    setting<&Spec::threads>("threads", "of computation per rank; 0: cores / ranks", 0,
                            kMostThreads),
    setting<&Spec::tuner>(
        "tuner",
        "who sets the library's all-reduces in each step: off, online (an agent learns from the "
        "steps), or the path of a table that tune wrote",
        0, 0, "off, online or a table's path")};

}  // namespace

SettingPart rank_part() { return {kRankRows, tuner_contradiction}; }

bool is_tuned(const TrainingSpec& spec) { return spec.tuner != kNoTuner; }

std::string tuner_table(const TrainingSpec& spec) {
  return is_tuned(spec) && spec.tuner != kOnlineTuner ? spec.tuner : "";
}

std::string tuner_file(const TrainingSpec& spec) {
  return fmt::format("tuner-{}.json", stable_id(tuner_table(spec)));
}

std::string tuner_misfit(const TrainingSpec& spec, Backend backend) {
  const BackendFacts& facts = backend_facts(backend);
  if (!is_tuned(spec) || !facts.on_gpu || facts.channels) return "";
  return fmt::format(
      "tuner = \"{}\": the trainer sets the calls of openmpi, mpich, gloo and nccl; take one of "
      "these instead of {}",
      spec.tuner, name_of(backend));
}

}  // namespace dynamiccl
