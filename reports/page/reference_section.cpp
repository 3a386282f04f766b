#include "reports/page/section.hpp"
#include "reports/queries/registry.hpp"

namespace dynamiccl {

nlohmann::json reference_data(const PageContext& page) {
  QueryScope scope;
  scope.runs = {page.run};
  nlohmann::json rows = table_json(named_query(page.reader, "published", scope));
  std::erase_if(rows.get_ref<nlohmann::json::array_t&>(),
                [](const nlohmann::json& row) { return row.at("measured").is_null(); });
  return {{"published", rows}};
}

}  // namespace dynamiccl
