#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/workers/job.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl::testing {

// Against jobs that hang, not against busy machines.
inline constexpr double kTimeoutS = 600;

extern const std::vector<TrainingMethod> kRing;
extern const std::vector<TrainingMethod> kServer;
/// Gloo's ranks can run PyTorch's engine beside our methods.
std::vector<TrainingMethod> ring_methods(Backend backend);

/// An MLP of few samples, one thread, several messages a step.
TrainingSpec small_spec(TrainingMethod method);

/// A launch whose cells are `methods`; PS gets `servers` ranks beside the workers.
std::unique_ptr<Job> job_of(Backend backend, int workers,
                            const std::vector<TrainingMethod>& methods, int oracle,
                            int servers = 1);

/// Starts the launch and requires that it ends well.
void run_to_end(Job& job, double timeout_s = kTimeoutS);

/// Changes what every cell of the launch trains.
void edit_specs(Job& job, const std::function<void(TrainingSpec&)>& edit);

/// Adds the digest of a worker's own weights; a server has none.
void add_digest(const CellRecord& record, std::set<std::string>& digests);

/// Bytes that a worker sums for all; 0 where it is no server.
std::uint64_t own_shard(const CellRecord& record);

/// A worker holds at most one more copy of the gradients, a server one slot per worker and the
/// answer, a worker that is a server too both. Of an MLP.
void check_memory(const CellRecord& record, int workers);

/// Runs a launch with a fault planted: every rank must see it in every cell and say `seen`.
void check_fault_is_seen(Job& job, const std::string& fault, const std::string& seen);

/// Ended well, trained what one process would and held no more memory than it may.
void check_cell(const CellRecord& record, int workers);

}  // namespace dynamiccl::testing
