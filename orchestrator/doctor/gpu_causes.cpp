// What keeps NCCL from the GPUs' own links, foretold before anything runs.
#include <fmt/format.h>

#include <algorithm>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/doctor/gpu_path.hpp"
#include "profiles/detect/fact_access.hpp"
#include "tuner/export/one_host.hpp"

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

namespace {

/// What keeps NCCL from taking the ranks for one host, and is nobody's wish.
bool are_hosts_of_their_own(const GpuPrediction& prediction) {
  return prediction.path == GpuPath::net &&
         std::any_of(prediction.obstacles.begin(), prediction.obstacles.end(),
                     [](const GpuObstacle& obstacle) {
                       return obstacle.what == "host hash" || obstacle.what == "/dev/shm device";
                     });
}

/// Does every rank have a channel of an IMEX domain, through which GPUs lend each other memory?
bool have_imex_channels(const Symptoms& symptoms) {
  return !symptoms.facts.empty() &&
         std::all_of(symptoms.facts.begin(), symptoms.facts.end(), [](const nlohmann::json& rank) {
           return whole_number<int>(fact(rank, "gpu", "imex_channels")).value_or(0) > 0;
         });
}

}  // namespace

std::string imex_line(const Symptoms& symptoms) {
  const auto prediction = predict_gpu_path(symptoms.profile, symptoms.host, symptoms.ranks);
  if (!are_hosts_of_their_own(prediction) || !have_imex_channels(symptoms)) return "";
  return "IMEX channels are usable: where nvidia-imex runs a domain here, NCCL 2.21 and later "
         "reach "
         "the GPUs' own links between containers by themselves (its log says \"via P2P/MNNVL\"); "
         "nothing is to be done";
}

/// Besides gpu-boundary: for those who must leave the containers apart.
std::optional<Symptom> look_for_gpu_sockets(const Symptoms& symptoms) {
  const auto prediction = predict_gpu_path(symptoms.profile, symptoms.host, symptoms.ranks);
  if (!are_hosts_of_their_own(prediction) || have_imex_channels(symptoms)) return std::nullopt;
  return Symptom{
      "ranks of one machine are isolated from each other, which leaves NCCL sockets alone",
      {Backend::nccl}};
}

Fix fix_gpu_sockets(const Symptoms& symptoms) {
  const OneHostWay way = one_host_way(symptoms.profile);
  std::string flag = fmt::format(
      "where the namespaces must stay apart, one memory folder of the machine in all of its "
      "containers makes them one host to NCCL {}.{} and later (docs/one-host.md)",
      kOneHostSince / 10000, kOneHostSince / 100 % 100);
  const auto add = [&](OneHostWay one, const char* what) {
    flag += fmt::format("\n      {}", what);
    for (const std::string& line : one_host_lines(one)) flag += "\n        " + line;
  };
  if (way == OneHostWay::settings)
    add(OneHostWay::settings,
        "by settings alone, each container with its own GPU (NCCL_HOSTID: a name for each machine; "
        "NCCL's shared memory):");
  add(OneHostWay::library,
      way == OneHostWay::library
          ? "by the library, with all GPUs in every container (NVLink or PCIe):"
          : "by the library, where /dev/shm must stay each container's own, or "
            "with all GPUs:");
  if (way == OneHostWay::settings) flag += "\n      " + all_nodes_advice();
  return {flag, with_one_host(symptoms.profile)};
}

}  // namespace dynamiccl
