#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tuner/action/action_space.hpp"
#include "tuner/job/job_facts.hpp"
#include "tuner/job/launch_space.hpp"

namespace dynamiccl {

/// Launch settings of a job of MPI or Gloo that may matter where it runs, each by what a job can
/// load: the allocator's settings, the algorithm of the collective with most bytes, how ranks of
/// one machine copy, sockets' buffers between machines, and the ranks' binding. One of them at a
/// time, with any of the allocator's.
/// @param traffic nullopt: nothing is known of its calls, so that no algorithm is a setting
/// @param may_bind the command is Open MPI's launcher, and does not bind by itself
/// @param taken variables that the user sets himself: they are his
/// @param left_out set to what those took away, for people
ActionSpace mpi_launch_space(const JobFacts& facts, const std::optional<MainTraffic>& traffic,
                             bool may_bind, const std::set<std::string>& taken,
                             std::vector<std::string>& left_out);

/// ln(step) that is expected of every arm: memory kept by the process is the commonest gain of
/// calls whose buffers the kernel maps anew, nothing is known of the others.
std::vector<double> mpi_launch_prior(const ActionSpace& space, Micros default_step);

/// Settings of a launch as variables of its command: env.X as X, mca.X as OMPI_MCA_X, the
/// allocator's as one GLIBC_TUNABLES.
/// @param tunables what GLIBC_TUNABLES says already
std::map<std::string, std::string> launch_variables(const std::map<std::string, std::string>& knobs,
                                                    const std::string& tunables);

}  // namespace dynamiccl
