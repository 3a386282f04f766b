// What keeps NCCL from the GPUs' own links, foretold before anything runs.
#include <fmt/format.h>

#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/doctor/gpu_path.hpp"
#include "tuner/export/folder_network.hpp"

namespace dynamiccl {

std::optional<Symptom> look_for_gpu_boundary(const Symptoms& symptoms) {
  const auto prediction = predict_gpu_path(symptoms.profile, symptoms.host, symptoms.ranks);
  if (prediction.obstacles.empty()) return std::nullopt;
  std::vector<std::string> whys;
  whys.reserve(prediction.obstacles.size());
  for (const auto& obstacle : prediction.obstacles)
    whys.push_back(fmt::format("{}: {}", obstacle.what, obstacle.why));
  return Symptom{
      fmt::format("foretold transport {}; {}", name_of(prediction.path), join(whys, "; ")),
      {Backend::nccl}};
}

Fix fix_gpu_boundary(const Symptoms& symptoms) {
  const auto prediction = predict_gpu_path(symptoms.profile, symptoms.host, symptoms.ranks);
  std::vector<std::string> flags;
  for (const auto& obstacle : prediction.obstacles)
    if (!obstacle.flag.empty()) flags.push_back(obstacle.flag);
  auto fixed = with_gpu_path(symptoms.profile);
  const auto after = predict_gpu_path(fixed, symptoms.host, symptoms.ranks);
  Fix fix{join(flags, " + "), std::nullopt};
  if (after.path == GpuPath::p2p) fix.profile = std::move(fixed);
  return fix;
}

/// Beside gpu-boundary: for those who must leave the containers apart.
std::optional<Symptom> look_for_gpu_sockets(const Symptoms& symptoms) {
  const auto prediction = predict_gpu_path(symptoms.profile, symptoms.host, symptoms.ranks);
  if (prediction.path != GpuPath::net || prediction.obstacles.empty()) return std::nullopt;
  return Symptom{
      "ranks of one machine are isolated from each other, which leaves NCCL sockets alone",
      {Backend::nccl}};
}

Fix fix_gpu_sockets(const Symptoms& symptoms) {
  std::string flag = fmt::format(
      "where the namespaces must stay apart: one folder in all containers (--volume {0}:{0})",
      kUsualFolder);
  for (const auto& [name, value] : folder_network("libdynamiccl-nccl-plugin.so", kUsualFolder))
    flag += fmt::format(" + {}={}", name, value);
  // What a proof measures has the channels of large messages, and caps for small ones.
  flag += fmt::format(
      " + NCCL_TUNER_PLUGIN=libdynamiccl-nccl-plugin.so + NCCL_MIN_CTAS={0} + NCCL_MAX_CTAS={0}",
      kFolderChannels);
  return {flag + " (docs/transport.md)", with_shared_folder(symptoms.profile)};
}

}  // namespace dynamiccl
