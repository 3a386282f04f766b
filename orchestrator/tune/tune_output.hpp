#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "db/table.hpp"
#include "orchestrator/tune/tuning.hpp"
#include "tuner/search/confirmation.hpp"

namespace dynamiccl {

/// One row per task: setting, default and tuned time, ratio with interval, verdict, flags.
Table tuning_table(const TunePlan& plan, const TuningResult& result);

/// What a table of settings for people shows: a search chose them, or a file that is judged.
enum class TuningKind { search, judged, between_runs, simulated };
/// The rows of tuning_table for people, and below them what each column and word says.
/// @param width columns of the terminal
std::string tuning_text(const TunePlan& plan, const TuningResult& result, TuningKind kind,
                        std::size_t width);

/// What the flags of a result mean and what to do, one sentence per flag that occurs.
std::vector<std::string> flag_advice(const TuningResult& result);

/// In how many cells a table that is judged asks for anything; "" where it does in all.
std::string applied_advice(const TuningResult& result);

/// One row per agent.
Table replay_table(const std::vector<ReplayScore>& scores);
/// One row per agent, from fresh launches.
Table confirmed_table(const std::vector<ConfirmedScore>& scores);
/// Adds a part's rows behind a column that names the backend.
void append_part(Table& table, const Table& part, Backend backend);

}  // namespace dynamiccl
