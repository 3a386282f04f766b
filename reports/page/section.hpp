#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "db/reader.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/leaf_difference.hpp"

namespace dynamiccl {

/// What a section of the page may read.
struct PageContext {
  const Reader& reader;
  std::string run;           ///< full id
  std::int64_t run_row = 0;  ///< row key of run
  const std::vector<CellFigure>& figures;
  const BareMetal& bare_metal;
};

/// One section of the page: what it shows as JSON, and the script that draws it.
struct PageSection {
  std::string_view id;  ///< key in the page's data and the section's anchor
  /// nullptr: the section draws the cells, which every section has.
  nlohmann::json (*data)(const PageContext&);
  std::string_view script;
};

/// In the order of the page: the table in sections.cpp.
const std::vector<PageSection>& page_sections();

/// Every measured cell with its figures, column by column; names are indexes into lists. Times are
/// microseconds.
nlohmann::json page_cells(const PageContext& page);

// The data of the sections, each in a file of its own.
nlohmann::json decisions_data(const PageContext& page);
nlohmann::json latency_data(const PageContext& page);
nlohmann::json regimes_data(const PageContext& page);
nlohmann::json reference_data(const PageContext& page);
nlohmann::json coverage_data(const PageContext& page);
nlohmann::json training_data(const PageContext& page);
nlohmann::json provenance_data(const PageContext& page);

/// Seven significant digits, in half of the file. The page shows three: rounding what was rounded
/// to few more would end in another digit than the tables of the queries.
nlohmann::json rounded(double value);
/// null for nullopt.
nlohmann::json rounded(const std::optional<double>& value);

/// Rows as objects by column name.
nlohmann::json table_json(const Table& table);

}  // namespace dynamiccl
