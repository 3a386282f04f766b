#include <fmt/format.h>

#include <map>

#include "reports/model/group_tiers.hpp"
#include "reports/model/published.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/training/synchronisation_rows.hpp"

namespace dynamiccl {
namespace {

// Accuracies are of equal training up to so much more or less of it: the last steps of an epoch.
constexpr double kEqualSamples = 0.02;

std::optional<double> percent_points(const std::optional<double>& share) {
  return share ? std::optional(100 * *share) : std::nullopt;
}

/// What speaks against the choice; "" where nothing published does.
std::string note_of(const SynchronisedCell& cell, std::optional<int> tier) {
  const PublishedByTier* by_tier = published_by_tier(cell.mode.by_tier);
  if (tier == 4 && cell.mode.by_tier == "BSP" && cell.compression == "none" && by_tier != nullptr)
    return fmt::format("tier 4: {}; local steps ({}), compression", by_tier->label[3],
                       training_studies().tier4_local_steps);
  const PublishedWaiting* published = published_waiting(cell.mode.tradeoff);
  if (cell.plain || published == nullptr || cell.compression != "none" || !cell.beyond_plain ||
      cell.beyond_samples_off.value_or(1) > kEqualSamples)
    return "";  // who ended at a target, or was compared with one that did, trained less
  return 100 * *cell.beyond_plain < published->worst_change ? "loses more than published" : "";
}

std::vector<Value> measured_row(const std::string& run_id, const SynchronisedCell& cell,
                                std::optional<int> tier) {
  std::vector<Value> row{run_id,           cell.environment, cell.backend, cell.model,
                         cell.batch,       cell.workers,     cell.method,  cell.synchronisation,
                         cell.compression, cell.launches};
  row.push_back(tier ? Value{std::int64_t{*tier}} : Value{});
  const PublishedByTier* by_tier = published_by_tier(cell.mode.by_tier);
  row.push_back(or_null(tier && by_tier != nullptr
                            ? by_tier->label[static_cast<std::size_t>(*tier - 1)]
                            : std::string()));
  row.push_back(or_null(by_tier == nullptr ? std::string() : by_tier->gate));
  row.push_back(or_null(cell.samples_over_plain));
  row.push_back(or_null(cell.sample_time_over_plain));
  row.push_back(or_null(cell.over_plain));
  const PublishedWaiting* published = published_waiting(cell.mode.tradeoff);
  const bool has_change = published != nullptr && cell.compression == "none";
  row.push_back(or_null(has_change ? std::optional(published->least_change) : std::nullopt));
  row.push_back(or_null(has_change ? std::optional(published->worst_change) : std::nullopt));
  row.push_back(or_null(percent_points(cell.beyond_plain)));
  row.push_back(or_null(percent_points(cell.beyond_plain_low)));
  row.push_back(or_null(percent_points(cell.beyond_plain_high)));
  const PublishedOrder* order = published_order_of(cell.mode.order);
  row.push_back(or_null(order == nullptr            ? std::string()
                        : order->non_convex.empty() ? order->convex + " (convex)"
                                                    : order->non_convex));
  row.push_back(or_null(note_of(cell, tier)));
  row.push_back(or_null(cell.settings));
  return row;
}

Table synchronisation_tradeoff_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                                     const QueryScope& /*scope*/) {
  Table table;
  for (const std::int64_t run : runs) {
    const std::string run_id = run_uuid_of(reader, run);
    const auto cells = synchronised_cells(reader, run);
    const auto tiers = tiers_of_environments(reader, run);
    for (const SynchronisedCell& cell : cells) {
      const auto tier = tiers.find(cell.environment);
      table.rows.push_back(measured_row(
          run_id, cell, tier == tiers.end() ? std::nullopt : std::optional(tier->second)));
    }
  }
  return table;
}

}  // namespace

Query synchronisation_tradeoff_query() {
  return {.title = "Trade-offs of synchronisation",
          .row =
              "one training cell with epochs: what the surveys say of its synchronisation on such "
              "links, of its accuracy at 32 workers and of its convergence, against its time over "
              "plain SGD's, as samples needed times time for each, and its accuracy",
          .columns = R"(
run_id environment backend model batch workers method
synchronisation | text | when workers wait for each other
compression | text | codec of the gradients
launches
tier | integer | 1 shared memory or NVLink, 2 PCIe or a network of 100 Gb/s, 3 of 25 Gb/s, 4 slower
on_tier | text | what the survey calls this synchronisation on that tier
gate | text | tiers that the survey has it for
samples_over_plain | real | samples of all workers until the target over plain SGD's, in the block of over_plain
sample_time_over_plain | real | time for each sample over plain SGD's, in that block
over_plain | real | time until the target over plain SGD's, median of the blocks: the product of both
published_least | real | accuracy less BSP's at 32 workers as published, percent points, at least
published_worst | real | at worst
accuracy_change | real | accuracy at the end less plain SGD's in the same block, percent points, median
accuracy_change_low | real | smallest
accuracy_change_high | real | largest
order | text | published order of the error with T steps, non-convex where given
note | text | what speaks against it
settings
)",
          .of_runs = synchronisation_tradeoff_table};
}

}  // namespace dynamiccl
