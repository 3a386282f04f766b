#pragma once

#include "workers/communicator.hpp"
#include "workers/train/exchange/exchange_plan.hpp"
#include "workers/train/worker_step.hpp"

namespace dynamiccl {

/// Times messages of growing size along the method's own path, up to the largest it sends, twice:
/// on idle processors, and while every worker computes. Ranks: all; the slowest rank's figures, the
/// same on every one.
/// @param counts elements of each gradient
/// @param worker whose buffers are overwritten; nullptr on servers. Its GPU is not kept busy: there
/// the transport takes no time from computation that processors could show.
/// @param threads of computation per worker
/// @param lanes of choose_lanes(), which the messages are shared out to
LinkCost measure_link(Communicator& comm, const TrainingSpec& spec, int servers,
                      const std::vector<std::size_t>& counts, TrainingWorker* worker, int threads,
                      std::size_t lanes);

/// How many collectives are best sent side by side: measured, more lanes only where they clearly
/// win. A library that moves data by threads of its own (NCCL over sockets) has one set of them per
/// lane; over NVLink one lane fills the link. Ranks: all.
/// @param worker whose buffers are overwritten
std::size_t choose_lanes(Communicator& comm, const std::vector<std::size_t>& counts,
                         TrainingWorker& worker);

/// Cells whose specs have one key send their messages along one path: they share a cost table.
std::string link_key(const TrainingSpec& spec);

}  // namespace dynamiccl
