#pragma once

#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "orchestrator/doctor/job/logged_job.hpp"

namespace dynamiccl {

/// Whether a word of --job names files that a job has left: a file or folder, and no process.
bool names_logs(const std::string& word);

struct LogLook {
  JobVerdict verdict;
  std::vector<JobRemark> remarks;
  std::vector<std::string> settings;  ///< of NCCL, that the log says were read: settings_read()
  std::size_t files = 0;
  std::size_t ranks = 0;              ///< that are spoken of
  std::vector<std::string> not_read;  ///< "FILE: why"
};

/// Reads files, and those in folders, whatever each is: text of NCCL, PyTorch's watchdog or RAS, a
/// dump of the flight recorder (pickle or JSON; the rank is the number at its name's end), RAS in
/// JSON. Executes nothing, changes nothing. A file that cannot be read is named in not_read.
/// @throws Error(input) where none can
LogLook look_at_logs(const std::vector<std::string>& paths);

/// One file's bytes. @returns why they were not read; "" = they were
std::string read_job_file(LoggedJob& job, const std::string& bytes, const std::string& name);

std::string to_text(const LogLook& look);
nlohmann::json to_json(const LogLook& look);

}  // namespace dynamiccl
