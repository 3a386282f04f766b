#include "embedded/reference_catalogue.hpp"
#include "profiles/catalogue.hpp"
#include "reports/figure_queries.hpp"
#include "reports/table_view.hpp"

namespace dynamiccl {

Table catalogue_table() {
  Table table;
  table.columns = {"kind", "name", "family", "here", "note", "requirement"};
  for (const auto& entry : parse_catalogue(std::string(embedded::reference_catalogue),
                                           "profiles/reference/catalogue.toml"))
    table.rows.push_back({entry.kind, entry.name, entry.family, or_null(entry.here),
                          or_null(entry.note), entry.requirement});
  return table;
}

}  // namespace dynamiccl
