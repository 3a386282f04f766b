#include "reports/model/launch_links.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "profiles/detect/fact_access.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

/// An empty object for what is none.
json object_of(const std::string& text) {
  auto parsed = json_or_discarded(text);
  return parsed.is_object() ? parsed : json::object();
}

}  // namespace

LaunchLinks links_of_launch(const Reader& reader, std::int64_t launch) {
  const Table regime = reader.query("SELECT regime_json FROM launch WHERE id = ?1", {launch});
  const json ingredients =
      object_of(TableView(regime).text(0, "regime_json")).value("ingredients", json::object());
  const auto text = [&](const char* key) {
    const auto found = ingredients.find(key);
    return found != ingredients.end() && found->is_string() ? found->get<std::string>() : "unknown";
  };
  const Table ranks = reader.query(
      "SELECT facts_json FROM launch_rank WHERE launch_id = ?1 AND facts_json IS NOT NULL "
      "ORDER BY rank",
      {launch});
  std::vector<json> facts;
  std::set<std::string> hosts;
  for (std::size_t i = 0; i < ranks.rows.size(); ++i) {
    facts.push_back(object_of(TableView(ranks).text(i, "facts_json")));
    hosts.insert(fact_text(facts.back(), "system", "boot_id"));
  }
  LaunchLinks links{text("intra_link"), text("inter_link"), text("inter_tier"), {}, {}, false};
  links.intra = intra_rate(facts, links.intra_link);
  links.inter = inter_rate(links.inter_tier);
  const json namespaces = ingredients.value("apart", json::array());
  links.apart = hosts.size() > 1 ||
                std::find(namespaces.begin(), namespaces.end(), "net") != namespaces.end();
  return links;
}

}  // namespace dynamiccl
