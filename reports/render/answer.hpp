#pragma once

#include <cstddef>
#include <string>

#include "db/reader.hpp"

namespace dynamiccl {

/// What `run` prints at its end: some 30 lines of 100 columns, as many more as it takes where the
/// terminal is narrower. First what speaks against the figures; then per environment, library and
/// regime what it costs and what moved its data or, where there is no bare metal next to another
/// environment, what calls take by each library; the surely best and worst cell, causes with their
/// fixes, training with the time to its target, and what to type next. Brackets are intervals.
/// @param run_id as Reader::resolve_run takes it
/// @param page where the run's page was written, "" = nowhere
/// @param columns of the terminal
std::string render_answer(const Reader& reader, const std::string& run_id,
                          const std::string& page = "", std::size_t columns = 100);

/// What `run` prints when each group has had its first launches and more are to come: what the
/// answer has of medians, without intervals and what follows from them.
/// @param launches that each group has had, too few for an interval
/// @param of how many at most
std::string render_first_answer(const Reader& reader, const std::string& run_id, int launches,
                                int of, std::size_t columns = 100);

/// What `run --full` prints: a table per operation with medians, intervals and each environment's
/// ratio to bare metal, the method under each, then failures and what is unsupported.
/// @param columns of the terminal, for tables that can be made narrower; 0 = no limit
std::string render_full_answer(const Reader& reader, const std::string& run_id,
                               std::size_t columns = 0);

}  // namespace dynamiccl
