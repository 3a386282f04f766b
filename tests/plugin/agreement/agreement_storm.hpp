#pragma once

#include <cstdint>
#include <string>

namespace dynamiccl {

/// Jobs of real processes that switch tables while they are delayed and stopped.
struct StormOptions {
  int switches = 60;  ///< proposals in all
  int jobs = 6;       ///< side by side
  int ranks = 3;
  int delay_ms = 40;  ///< at most, before every look-up, message and verdict; uniform
  std::uint64_t seed = 1;
  bool stop_processes = true;  ///< SIGSTOP and SIGCONT to ranks and leaders
};

struct StormResult {
  std::uint64_t proposals = 0;
  std::uint64_t committed = 0;
  std::uint64_t calls = 0;      ///< compared over all ranks
  std::uint64_t differing = 0;  ///< calls for which two ranks used different tables
  std::uint64_t lost = 0;       ///< calls with a table that was never proposed
  std::uint64_t adopted = 0;    ///< changes of the table that the ranks' calls show
  std::uint64_t stops = 0;
  int failed_processes = 0;
};

/// @param folder for the jobs' regions; must exist
StormResult run_storm(const StormOptions& options, const std::string& folder);

}  // namespace dynamiccl
