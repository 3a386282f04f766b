#pragma once

#include "train/plan/exchange_plan.hpp"
#include "train/step/worker_step.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// Times messages of growing size along the method's own path, up to the largest it sends, twice:
/// on idle processors, and while every worker computes. Ranks: all; the slowest rank's figures, the
/// same on every one.
/// @param spec its servers are a number, not left to the placement
/// @param counts elements of each gradient
/// @param worker whose buffers are overwritten; nullptr on dedicated servers. Its GPU is not kept
/// busy: there the transport takes no time from computation that processors could show.
/// @param threads of computation per worker
/// @param path of choose_path()
LinkCost measure_link(Communicator& comm, const TrainingSpec& spec,
                      const std::vector<std::size_t>& counts, TrainingWorker* worker, int threads,
                      GradientPath path);

/// The paths of a GPU's all-reduce, measured one after the other with messages as large as the
/// model's gradients; none where there is only one.
/// Collectives side by side: a library that moves data by threads of its own (NCCL over sockets)
/// has one set of them per lane, tried while twice as many are clearly faster; over NVLink one lane
/// fills the link. By way of host memory: a
/// library without kernels that add on GPUs (Open MPI) copies whole messages to ordinary memory to
/// add them there, which page-locked memory does faster; among four ranks our own ring of them may
/// be faster still. Ranks: all; the same on every one.
/// @param worker whose buffers are overwritten
/// @param cores that this rank may run on
std::vector<TriedPath> try_paths(Communicator& comm, const std::vector<std::size_t>& counts,
                                 TrainingWorker& worker, int cores);

/// Whether a plan or a prediction is made of what messages cost. A lossy step is not foretold.
bool needs_cost(const TrainingSpec& spec);

/// Cells whose specs have one key send their messages along one path: they share a cost table.
std::string link_key(const TrainingSpec& spec);

}  // namespace dynamiccl
