#include "reports/model/regime_causes.hpp"

#include "core/vocabulary/text.hpp"
#include "reports/model/placements.hpp"

namespace dynamiccl {

using nlohmann::json;

std::string text_at(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_string()
             ? found->get<std::string>()
             : std::string();
}

namespace {

bool is_at(const json& object, const char* key, bool wanted) {
  return object.is_object() && object.contains(key) && object[key] == json(wanted);
}

std::string apart_text(const json& ingredients) {
  const auto found = ingredients.find("apart");
  if (found == ingredients.end() || !found->is_array() || found->empty()) return "";
  std::vector<std::string> names;
  for (const auto& name : *found)
    if (name.is_string()) names.push_back(name.get<std::string>());
  return join(names, ", ");
}

/// NCCL takes containers for machines: sharing one of the two namespaces alone gains little.
RegimeCause no_shared_memory(const json& ingredients, const std::string& why) {
  const std::string because = why.empty() ? "" : " (" + why + ")";
  if (!text_at(ingredients, "library").starts_with("nccl-"))
    return {"no memory shared between ranks" + because,
            "environment = \"cross-docker-shared-ipc\""};
  const bool by_setting = why.find("NCCL_SHM_DISABLE=1") != std::string::npos;
  return {"NCCL's ranks share no memory" + because,
          by_setting ? "unset NCCL_P2P_DISABLE NCCL_SHM_DISABLE"
                     : "environment = \"cross-docker-shared\" or \"cross-docker-one-host\""};
}

}  // namespace

Crowding crowding_of(const Reader& reader, const std::string& run_uuid) {
  Crowding crowding;
  for (const auto& [launch, group, placement] : launch_placements(reader, run_uuid))
    if (placement.own_cores < placement.ranks)
      crowding[{group.environment, group.backend}].insert(placement.cpus);
  return crowding;
}

std::vector<RegimeCause> regime_causes(const json& regime, const std::set<std::string>& crowding) {
  std::vector<RegimeCause> causes;
  for (const auto& placement : crowding)
    causes.push_back({"ranks share cores: " + placement, "fewer ranks, or more cores for them"});
  const json ingredients = regime.value("ingredients", json::object());
  const json evidence = regime.value("evidence", json::object());
  const auto because = [&](const char* key) {
    const std::string why = text_at(evidence, key);
    return why.empty() ? "" : " (" + why + ")";
  };
  const std::string tier = text_at(ingredients, "inter_tier");
  if (text_at(ingredients, "intra_link") == "none")
    causes.push_back(no_shared_memory(ingredients, text_at(evidence, "intra_link")));
  if (is_at(ingredients, "single_copy", false) && text_at(ingredients, "intra_link") == "shm")
    causes.push_back({"shared memory without single copy" + because("single_copy"),
                      "dynamiccl doctor ENVIRONMENT --prove --cause cma-blocked"});
  if (is_at(ingredients, "small_shm", true))
    causes.push_back({"small /dev/shm" + because("small_shm"),
                      "dynamiccl doctor ENVIRONMENT --prove --cause small-shm"});
  if (tier.starts_with("shaped-"))
    causes.push_back({"links capped: " + tier.substr(7), "environment = \"cross-docker\""});
  if (const auto names = apart_text(ingredients); !names.empty())
    causes.push_back({"namespaces apart: " + names, ""});
  return causes;
}

}  // namespace dynamiccl
