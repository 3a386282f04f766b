#pragma once

#include <string>
#include <vector>

#include "orchestrator/launch/process.hpp"

namespace dynamiccl {

/// The commands of a launch as one that submits them: `prefix` is sbatch's argv. Pure.
Command batch_command(const std::vector<std::string>& prefix, const std::vector<Command>& commands);

/// LaunchSite::start for commands of batch_command(): submits the job and waits for its end. An
/// interrupt cancels it, and so does the timeout, which counts from the job's start: how long it
/// waits in the queue is Slurm's affair. Its number is written to FOLDER/job before it is waited for,
/// so that a later start of the run finds it.
/// @param folder the launch's
ProcessOutcome run_as_job(const std::string& run_id, const std::string& folder,
                          const std::vector<Command>& commands, const ProcessOptions& options);

/// Number of the job that was submitted for the launch of this folder, "" = none was.
std::string job_of_launch(const std::string& folder);

/// Waits for a job that an earlier start has submitted, as run_as_job() does.
ProcessOutcome wait_for_job(const std::string& job, const std::string& folder,
                            const ProcessOptions& options);

}  // namespace dynamiccl
