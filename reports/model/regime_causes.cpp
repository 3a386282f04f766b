#include "reports/model/regime_causes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/vocabulary/text.hpp"
#include "reports/model/leaf_difference.hpp"
#include "reports/model/placements.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {

using nlohmann::json;

std::string text_at(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_string()
             ? found->get<std::string>()
             : std::string();
}

namespace {

bool is_apart(const json& ingredients, std::string_view name) {
  const auto found = ingredients.find("apart");
  return found != ingredients.end() && found->is_array() &&
         std::find(found->begin(), found->end(), json(name)) != found->end();
}

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

/// NCCL and Open MPI take containers for machines. MPICH does not, but its shared memory wants one
/// PID namespace as well.
RegimeCause no_shared_memory(const json& ingredients, const std::string& why) {
  const std::string because = why.empty() ? "" : " (" + why + ")";
  const std::string library = text_at(ingredients, "library");
  if (!library.starts_with("nccl-"))
    return {"no memory shared between ranks" + because, library.starts_with("mpich")
                                                            ? "environment = \"cross-docker-pod\""
                                                            : "environment = \"single-docker\""};
  const bool by_setting = why.find("NCCL_SHM_DISABLE=1") != std::string::npos;
  return {"NCCL's ranks share no memory" + because,
          by_setting ? "unset NCCL_P2P_DISABLE NCCL_SHM_DISABLE"
                     : "environment = \"cross-docker-shared\" or \"cross-docker-one-host\""};
}

/// Open MPI takes containers for machines, and between them sends by TCP whatever they share.
std::string single_copy_fix(const json& ingredients, const std::string& why) {
  const char* cause =
      why.find("user namespaces") != std::string::npos ? "user-apart" : "cma-blocked";
  if (why.find("PID namespaces") != std::string::npos) {
    // Nor does UCX share what a folder alone gives to both.
    if (!text_at(ingredients, "library").starts_with("mpich") || is_apart(ingredients, "ipc"))
      return "";
    cause = "pid-apart";
  }
  return fmt::format("dynamiccl doctor ENVIRONMENT --prove --cause {}", cause);
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
    causes.push_back({"one /dev/shm, but no single copy" + because("single_copy"),
                      single_copy_fix(ingredients, text_at(evidence, "single_copy"))});
  if (is_at(ingredients, "small_shm", true))
    causes.push_back({"small /dev/shm" + because("small_shm"),
                      "dynamiccl doctor ENVIRONMENT --prove --cause small-shm"});
  if (tier.starts_with("shaped-"))
    causes.push_back({"links capped: " + tier.substr(7), "environment = \"cross-docker\""});
  if (const auto names = apart_text(ingredients); !names.empty())
    causes.push_back({"namespaces apart: " + names, ""});
  return causes;
}

std::vector<EnvironmentCause> environment_causes(const Reader& reader, const std::string& run_uuid,
                                                 std::int64_t run_row) {
  const Table table = reader.query(
      "SELECT v.environment, v.backend, l.regime_json FROM v_launch v "
      "JOIN launch l ON l.id = v.launch_row WHERE v.run_row = ?1 AND v.launch_status = 'ok' "
      "AND v.regime_id IS NOT NULL GROUP BY v.environment, v.backend, v.regime_id "
      "ORDER BY v.environment",
      {run_row});
  const TableView rows(table);
  auto crowding = crowding_of(reader, run_uuid);
  std::map<std::string, std::map<std::string, FixesOf>> found;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto regime = stored_json(rows.text(i, "regime_json"));
    if (!regime.is_object()) continue;
    const auto environment = rows.text(i, "environment");
    const auto backend = rows.text(i, "backend");
    for (const auto& [text, fix] : regime_causes(regime, crowding[{environment, backend}]))
      found[environment][text][fix].insert(backend);
  }
  const auto usual = found["bare-metal"];
  std::vector<EnvironmentCause> causes;
  for (const auto& [environment, texts] : found)
    for (const auto& [text, fixes] : texts)
      if (!usual.contains(text)) causes.push_back({environment, text, fixes});
  return causes;
}

}  // namespace dynamiccl
