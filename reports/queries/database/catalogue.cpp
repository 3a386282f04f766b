#include "profiles/published/catalogue.hpp"
#include "embedded/reference_catalogue.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/figure_queries.hpp"

namespace dynamiccl {

Table catalogue_table() {
  Table table;
  table.columns = {"kind", "name", "family", "here", "note", "requirement"};
  for (const auto& entry : parse_catalogue(std::string(embedded::reference_catalogue),
                                           "profiles/published/catalogue.toml"))
    table.rows.push_back({entry.kind, entry.name, entry.family, or_null(entry.here),
                          or_null(entry.note), entry.requirement});
  return table;
}

}  // namespace dynamiccl
