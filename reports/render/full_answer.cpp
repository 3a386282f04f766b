#include "reports/render/answer.hpp"

#include <fmt/format.h>

#include "core/vocabulary/terminal_lines.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/c2c.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/operation_tables.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/synchronisation_warnings.hpp"
#include "reports/model/table_view.hpp"
#include "reports/model/training_report.hpp"
#include "reports/model/trust.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {

std::string render_full_answer(const Reader& reader, const std::string& run_id,
                               std::size_t columns) {
  const std::string run = reader.resolve_run(run_id);
  const Table info = reader.query("SELECT name, status FROM run WHERE uuid = ?1", {run});
  const TableView about(info);
  std::string out = fmt::format("run {} ({}), {}: {}\n", run, about.text(0, "name"),
                                about.text(0, "status"), cell_counts(reader, run));
  const auto figures = load_figures(reader, run_scope(reader, run));
  for (const auto& operation : operation_tables(figures)) {
    out +=
        fmt::format("\n{}\n{}{}\n", operation.title,
                    render_table(operation.table, OutputFormat::text, operation_columns(), columns),
                    broken_text(operation.method, columns));
  }
  const Table training =
      training_overview(training_report(reader, run_scope(reader, run).front(), figures));
  if (!training.rows.empty())
    out += broken_text(
               "\ntraining, medians over launches; over_ddp: step over the best ddp's in the same "
               "launches\n",
               columns) +
           render_table(training, OutputFormat::text, training_columns(), columns);
  auto notes = trust_notes(reader, run, figures);
  const std::int64_t run_row = run_scope(reader, run).front();
  for (auto& note : saturation_notes(reader, run_row, c2c_cells(reader, run_row, figures)))
    notes.push_back(std::move(note));
  for (auto& warning : synchronisation_warnings(reader, run_row, figures))
    notes.push_back(std::move(warning));
  if (!notes.empty()) out += "\n" + broken_text(join(notes, "\n"), columns) + "\n";
  const Table failures = cells_without_result(reader, run, false);
  if (!failures.rows.empty()) {
    out += "\nfailed or not measured\n" + render_table(failures, OutputFormat::text, {}, columns);
  }
  const Table unsupported = cells_without_result(reader, run, true);
  if (!unsupported.rows.empty()) {
    out += "\nunsupported here\n" + render_table(unsupported, OutputFormat::text, {}, columns);
  }
  return out;
}

}  // namespace dynamiccl
