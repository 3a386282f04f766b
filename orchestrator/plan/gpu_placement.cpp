#include "orchestrator/plan/gpu_placement.hpp"

#include <fmt/format.h>

#include <charconv>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/counted.hpp"

namespace dynamiccl {
namespace {

const std::string kServerGpu = "env.DYNAMICCL_SERVER_GPU";
const std::string kSharedGpus = "env.DYNAMICCL_SHARED_GPUS";

}  // namespace

bool server_without_gpu(const PlannedGroup& group) {
  const auto knob = group.knobs.find(kServerGpu);
  return backend_facts(group.backend).gpu_per_rank && group.architecture == Architecture::ps &&
         knob != group.knobs.end() && knob->second == "none";
}

std::optional<int> shared_gpus(const PlannedGroup& group) {
  const auto knob = group.knobs.find(kSharedGpus);
  if (knob == group.knobs.end()) return std::nullopt;
  int count = 0;
  const char* end = knob->second.data() + knob->second.size();
  const auto [stop, error] = std::from_chars(knob->second.data(), end, count);
  return error == std::errc() && stop == end && count > 0 ? count : 0;
}

std::string why_too_few_gpus(const PlannedGroup& group, int gpus) {
  const std::string here = counted(gpus, "GPU");
  if (const auto shared = shared_gpus(group)) {
    if (*shared > 0 && *shared <= gpus) return "";
    return fmt::format("{} = {}: ranks take turns on 1 GPU or more, here {} {}", kSharedGpus,
                       group.knobs.at(kSharedGpus), gpus == 1 ? "is" : "are", here);
  }
  const int needed = group.ranks - (server_without_gpu(group) ? 1 : 0);
  if (!backend_facts(group.backend).gpu_per_rank || needed <= gpus) return "";
  return fmt::format("NCCL needs a GPU per rank: {} ranks, {} ({} lets ranks take turns)",
                     group.ranks, here, kSharedGpus);
}

std::vector<int> gpus_of_ranks(const PlannedGroup& group, const EnvironmentProfile& profile,
                               int server_rank) {
  std::vector<int> gpus;
  if (!backend_facts(group.backend).on_gpu) return gpus;
  const bool apart = server_without_gpu(group);
  const int shared = shared_gpus(group).value_or(0);
  int next = 0;
  for (int rank = 0; rank < group.ranks; ++rank) {
    if (apart && rank == server_rank)
      gpus.push_back(-1);
    else
      gpus.push_back(profile.gpus == GpuVisibility::one_per_rank ? 0 : next++);
    if (shared > 0 && gpus.back() >= 0) gpus.back() %= shared;
  }
  return gpus;
}

}  // namespace dynamiccl
