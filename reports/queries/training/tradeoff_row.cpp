#include "reports/queries/training/tradeoff_row.hpp"
#include "reports/model/figures.hpp"

#include "reports/model/table_view.hpp"

namespace dynamiccl {

std::vector<Value> tradeoff_row(const TrainingEvidence* like, const std::string& run_id,
                                const PublishedLabel& published, const TrainingEvidence* of,
                                const TradeoffFinding& finding) {
  std::vector<Value> row(6);
  row[0] = run_id;
  if (like != nullptr) {
    const CellFigure& f = like->cell->figure;
    row[1] = f.environment;
    row[2] = f.backend;
    row[3] = like->cell->cell.model;
    row[4] = like->cell->cell.batch;
    row[5] = f.ranks;
  }
  row.emplace_back(published.property);
  row.emplace_back(published.technique);
  row.push_back(or_null(published.label));
  row.emplace_back(finding.measured);
  row.push_back(or_null(of == nullptr ? "" : of->cell->figure.algorithm));
  row.push_back(or_null(finding.evidence));
  return row;
}

}  // namespace dynamiccl
