#pragma once

#include <string>

#include "core/vocabulary/json.hpp"
#include "orchestrator/tune/job/job_tuning.hpp"

namespace dynamiccl {

/// A choice as a job loads it: FOLDER/nccl.conf, FOLDER/nccl.table where calls are set, and
/// FOLDER/table.json, the configuration table with where it holds and how it was confirmed. Its
/// epoch is one more than that of the table that was there. Of a job that is not NCCL's the table,
/// and what `export` makes of it: a file of variables.
/// @param provenance run, command, versions of driver and NCCL; no secrets
/// @returns the words to put before the command
/// @throws Error(environment) when the folder was exchanged or cannot be written
std::string write_choice(const HeldFolder& folder, const JobTuningResult& result,
                         const std::string& plugin, nlohmann::json provenance);

/// What every rank is to preload besides what the files set; "" = nothing.
std::string preload_of(const JobChoice& choice);
/// The same as words before a command, with the space behind them: "LD_PRELOAD=FILE ", or "".
std::string preload_words(const JobChoice& choice);

/// What was written there.
struct StoredChoice {
  JobChoice choice;
  nlohmann::json provenance;
};
/// @throws Error(input) when there is none, Error(data) when it is damaged
StoredChoice read_choice(const std::string& folder);

}  // namespace dynamiccl
