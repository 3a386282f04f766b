#include <fmt/format.h>

#include <map>

#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "reports/model/regime_causes.hpp"
#include "reports/model/table_view.hpp"
#include "reports/page/section.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

/// What the profile asks for, in the words of profiles/environments.
std::string promised(const json& profile) {
  const int per_container = profile.value("ranks_per_container", 0);
  const std::string kind = text_at(profile, "kind");
  std::string text = kind;
  if (kind != "bare-metal") {
    text += per_container == 0   ? ", all ranks in one container"
            : per_container == 1 ? ", one container per rank"
                                 : fmt::format(", {} ranks per container", per_container);
  }
  std::map<std::string, std::vector<std::string>> by_sharing;
  for (const char* name : {"network", "ipc", "uts", "pid", "user"})
    by_sharing[text_at(profile, name)].emplace_back(name);
  for (const auto& [sharing, names] : by_sharing)
    if (!sharing.empty()) text += fmt::format("; {} {}", sharing, join(names, ", "));
  if (const auto shm = profile.value("shm_size_bytes", std::uint64_t{0}); shm > 0)
    text += "; /dev/shm " + format_bytes(Bytes(shm));
  if (profile.contains("link_bits_per_s") && profile["link_bits_per_s"].is_number())
    text += fmt::format("; links capped at {:.0f} Mbit/s",
                        profile["link_bits_per_s"].get<double>() / 1e6);
  return text;
}

json texts_of(const std::vector<RegimeCause>& causes) {
  json texts = json::array();
  for (const auto& cause : causes) texts.push_back(cause.text);
  return texts;
}

/// "3 of 4 GB over tcp" needs sums; the page says which transports were seen and how that is known.
json transports_of(const PageContext& page) {
  const Table table = page.reader.query(
      "SELECT v.environment, v.backend, v.regime_id, t.transport, count(DISTINCT v.launch_row) AS "
      "launches, "
      "sum(t.payload_bytes) AS payload_bytes, sum(t.tcp_bytes) AS tcp_bytes, "
      "sum(t.cma_bytes) AS cma_bytes, sum(t.cma_errors) AS cma_errors, "
      "min(t.evidence) AS evidence FROM v_launch v JOIN transport t "
      "ON t.launch_id = v.launch_row WHERE v.run_row = ?1 AND v.launch_status = 'ok' "
      "GROUP BY v.environment, v.backend, v.regime_id, t.transport ORDER BY payload_bytes DESC",
      {page.run_row});
  const TableView rows(table);
  json list = json::array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    list.push_back({{"environment", rows.text(i, "environment")},
                    {"backend", rows.text(i, "backend")},
                    {"regime", rows.text(i, "regime_id")},
                    {"transport", rows.text(i, "transport")},
                    {"launches", rows.integer(i, "launches")},
                    {"payload_bytes", rows.integer(i, "payload_bytes")},
                    {"tcp_bytes", rows.integer(i, "tcp_bytes")},
                    {"cma_bytes", rows.integer(i, "cma_bytes")},
                    {"cma_errors", rows.integer(i, "cma_errors")},
                    {"evidence", rows.text(i, "evidence")}});
  }
  return list;
}

json profiles_of(const PageContext& page) {
  const Table table = page.reader.query(
      "SELECT DISTINCT p.environment, p.profile_json FROM plan_group g "
      "JOIN profile p ON p.id = g.profile_id WHERE g.run_id = ?1 ORDER BY p.environment",
      {page.run_row});
  const TableView rows(table);
  json profiles = json::object();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const json profile = stored_json(rows.text(i, "profile_json"));
    if (!profile.is_object()) continue;
    profiles[rows.text(i, "environment")] = {{"description", text_at(profile, "description")},
                                             {"promised", promised(profile)}};
  }
  return profiles;
}

}  // namespace

json regimes_data(const PageContext& page) {
  // One launch speaks for all of its regime: equal ingredients are what makes a regime.
  const Table table = page.reader.query(
      "SELECT o.*, l.regime_json FROM (SELECT v.environment, v.backend, v.regime_id, "
      "v.regime_name, "
      "sum(v.launch_status = 'ok') AS launches, count(*) AS attempts, max(v.launch_row) AS newest "
      "FROM v_launch v WHERE v.run_row = ?1 AND v.regime_id IS NOT NULL "
      "GROUP BY v.environment, v.backend, v.regime_id) o JOIN launch l ON l.id = o.newest "
      "ORDER BY o.environment, o.backend",
      {page.run_row});
  const TableView rows(table);
  json regimes = json::array();
  auto crowding = crowding_of(page.reader, page.run);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const json regime = stored_json(rows.text(i, "regime_json"));
    if (!regime.is_object()) continue;
    regimes.push_back(
        {{"environment", rows.text(i, "environment")},
         {"backend", rows.text(i, "backend")},
         {"id", rows.text(i, "regime_id")},
         {"name", rows.text(i, "regime_name")},
         {"launches", rows.integer(i, "launches")},
         {"attempts", rows.integer(i, "attempts")},
         {"ingredients", regime.value("ingredients", json::object())},
         {"evidence", regime.value("evidence", json::object())},
         {"causes",
          texts_of(regime_causes(
              regime, crowding[{rows.text(i, "environment"), rows.text(i, "backend")}]))}});
  }
  return {
      {"regimes", regimes}, {"transports", transports_of(page)}, {"profiles", profiles_of(page)}};
}

}  // namespace dynamiccl
