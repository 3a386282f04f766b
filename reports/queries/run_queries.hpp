#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "db/reader.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {

// Queries that need more of a run than its figures. `runs` are row keys of run; every table has
// run_id as its first column and may be empty.

/// One of them as the listing has it. Rows are chosen after the table is made.
struct RunQuery {
  std::string_view name;
  std::string_view title;
  std::string_view row;
  Table (*table)(const Reader&, const std::vector<std::int64_t>&, const QueryScope&);
};
/// Those that set training beside what is published of it (training_queries.cpp).
std::span<const RunQuery> training_queries();

/// A row per environment, backend and regime: what its links inside and outside can carry, and
/// whether the interconnect is flat (B-29). Unknown where the machine does not state both.
Table interconnect_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                         const QueryScope& scope);
/// A row per cell: effective bandwidth, its share of the rate of the link that carried it where
/// that is known, its share of the best size, and how far the best size is ahead (G-13).
Table line_rate_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                      const QueryScope& scope);

/// A row per rank of a group and measure: is it slower than the others of its kind, in which share
/// of the iterations and in which launches (B-30)?
Table straggler_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                      const QueryScope& scope);
/// The rule behind that table.
std::string straggler_method();
/// A row per cell: page faults of a call beside the message's pages, what the allocator's settings
/// (core/vocabulary/malloc_settings.hpp) really came to, and the time against the allocator's
/// default.
Table page_faults_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                        const QueryScope& scope);

/// A row per operation, size and aspect (time, 95th percentile, start-up), a column per value of
/// the axis `scope.vary`, the winner and whether it is sure (G-08, G-09, G-10).
/// @throws Error(input) for an axis that is no choice
Table tradeoffs_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                      const QueryScope& scope);

/// A row per model, batch and number of workers of an environment and backend: the best training
/// method, its speed-up, and whether its lead is sure (G-11, G-14).
Table atlas_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                  const QueryScope& scope);

/// A row per change of places, along size, workers, batch, model, environment or backend with all
/// else fixed: of parameter server and ring at equal workers, of training methods that merge
/// gradients and methods that cut them (G-18, E-167 to E-169), and of backends along the
/// environment. Ends are the nearest points at which
/// each is surely faster. What never changes places has one row per pair and axis.
Table flips_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                  const QueryScope& scope);

/// A row per piece of work and tier that it was measured on: the best configuration there, and what
/// keeping the nearest tier's would cost (G-19, A-57).
Table tiers_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                  const QueryScope& scope);

/// A row per training cell: by what its step differs from the same one on bare metal (computing,
/// waiting, the rest), beside what the micro-benchmark's times of its messages differ by, and how
/// those times go with measured communication over all cells.
Table attribution_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                        const QueryScope& scope);

}  // namespace dynamiccl
