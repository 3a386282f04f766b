#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "db/reader.hpp"
#include "profiles/published/training_studies.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {

// Queries that set training beside what the studies publish of it; as in run_queries.hpp.

/// A row per cell of training, and per operation of a micro-benchmark: the six-tuple of the
/// survey's taxonomy, its label, and what the label was checked by (D-55, D-56).
Table taxonomy_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                     const QueryScope& scope);
/// A row per technique of that taxonomy: its level, what is published of it, whether it loses
/// something as it is used here, and in how many cells it was; the tuner at its level between
/// scheduling and the libraries (D-56, D-57).
Table techniques_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                       const QueryScope& scope);

/// A row per training cell: what C2C and the fitted cost of messages foretell, and the gap to it
/// (E-186 to E-188, G-24); lossless_saturated at the best method of a workload (E-147).
Table c2c_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                const QueryScope& scope);
/// A row per contrast, published pair and measured one: does the speed-up fall where C2C rises
/// (E-189)?
Table c2c_contrasts_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                          const QueryScope& scope);

/// A row per method with a server and its ring: time of equal samples with the ratio's interval
/// over launches, and the container study's times beside it (D-10).
Table ps_against_ring_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                            const QueryScope& scope);
/// A row per model, method and workers: speed-up over one worker, measured and published. No rows
/// for a run that trained nothing.
Table published_training_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                               const QueryScope& scope);

/// A row per published property of an architecture, or of a way to schedule, in each workload: the
/// label beside what was measured, "not measured" where nothing was (D-11, D-54).
Table architecture_tradeoff_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                                  const QueryScope& scope);
Table scheduling_tradeoff_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                                const QueryScope& scope);

}  // namespace dynamiccl
