#pragma once

#include <string>
#include <vector>

#include "containers/cluster/cluster_options.hpp"
#include "containers/cluster/node_report.hpp"
#include "core/vocabulary/json.hpp"
#include "orchestrator/doctor/job/look_at_job.hpp"

namespace dynamiccl {

/// What the looks at one host's ranks were, for another host that judges all of them.
nlohmann::json looks_json(const LiveJob& job);

/// @param said what `doctor --job --json --looks` printed on `host`
/// @throws Error(data) where it is not that
JobLook look_of_host(const std::string& host, const std::string& said);

/// Adds the look that a host's answer holds.
/// @returns why nothing is known of the host; "" = it is
std::string take_answer(const std::string& host, const NodeResult& result,
                        std::vector<JobLook>& looks);

/// The ranks of all hosts as one job, judged anew; what was not seen of a host is said as evidence,
/// and so is a rank that two processes are. Where all hosts answered (no `problems`), none may hide
/// a rank (`partly`) and one has none, ranks that are missing are over. Looks end where the first
/// host's do.
/// @throws Error(input) where hosts have ranks of two jobs
JobLook joined_look(std::vector<JobLook> hosts, const std::vector<std::string>& problems);

/// The same job looked at on all of these hosts at once, by this program there (under the same
/// path), over the remote shell. Blocking: some 11 s, and what the shells take.
/// @param named as look_at_job()'s, for all hosts; HOST:NAME for one of them alone
/// @throws Error(input) where no host has a rank, or a process id has no host
JobLook look_at_hosts(const std::vector<std::string>& named, const ClusterOptions& options,
                      bool (*interrupted)());

}  // namespace dynamiccl
