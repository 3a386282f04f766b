#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

struct TrainingSpec;

/// Version of run.json and of the record lines; worker and orchestrator must agree.
inline constexpr int kRunProtocolVersion = 1;

/// One thing to be measured inside a launch.
struct WorkCell {
  std::string id;  ///< stable_id of the cell's canonical key, given back in the records
  Collective collective = Collective::allreduce;
  /// The size as nccl-tests counts it: the whole buffer (allgather, reduce_scatter, gather and
  /// alltoall, alltoallv: all ranks' parts together); push/pull: one worker's tensor.
  Bytes size;
  DataType datatype = DataType::float32;
  /// "library" lets the backend choose; "own_ring" is our ring over send/recv (allreduce,
  /// allgather, reduce_scatter); other names are the backend's own, applied per call where it can.
  std::string algorithm = "library";
  bool in_place = false;
  std::map<std::string, std::string> knobs;  ///< per-communicator and per-call knobs, by name
  /// Calls per sample, as an earlier launch has settled them; 0: this launch settles them, by
  /// Protocol::batch_target.
  int batch = 0;
  /// Of a planned training cell: what `algorithm` and `knobs` say, read once (training_cell()). It
  /// does not travel.
  std::shared_ptr<const TrainingSpec> training;
};

/// How cells are timed. Defaults: 10 + 100 iterations; launches are the orchestrator's.
struct Protocol {
  int warmup = 10;
  int iterations = 100;
  /// Timed part of one cell in one launch is cut short (never below `min_iterations`) past this.
  Micros cell_time_cap{2e6};
  int min_iterations = 5;
  /// Calls faster than this are timed in batches that last at least this long; 0 switches batching
  /// off.
  Micros batch_target{50.0};
  int max_batch = 1000;
  /// Batches calls in which one rank alone sends or receives, too. Their mean is then a throughput:
  /// the root runs ahead. nccl-tests times so.
  bool batch_rooted = false;
  /// Calls of a sample take turns over parts of buffers as large as the launch's largest cell, so
  /// that their data is not in a cache; otherwise all work on the same memory. nccl-tests rotates.
  bool rotate_buffers = false;
  RankAggregation rank_aggregation = RankAggregation::max;
  bool verify = true;
};

/// What one rank reads (run.json): everything a worker knows about the outside. Written by the
/// orchestrator for each launch, the same file for every rank.
struct RunConfig {
  int protocol_version = kRunProtocolVersion;
  std::string launch_id;  ///< UUID
  Backend backend{};
  Architecture architecture = Architecture::ring;
  int ranks = 1;
  int server_rank = 0;     ///< PS only: which rank is the server
  std::uint64_t seed = 0;  ///< fresh for each launch: input data derive from it
  /// Folder for rank<r>.jsonl, visible to every rank under this same path.
  std::string output_dir;
  /// Folder for file rendezvous of backends without a launcher (Gloo, NCCL); empty with MPI.
  std::string rendezvous_dir;
  /// Network interface for backends that need one (Gloo); empty lets the worker choose.
  std::string interface;
  /// Rank r uses the GPU with this index of those it sees; empty on CPU backends.
  std::vector<int> gpu_of_rank;
  Micros connect_timeout{30e6};
  Protocol protocol;
  std::vector<WorkCell> cells;  ///< in the order in which they are measured
};

/// @returns pretty-printed JSON
std::string to_json(const RunConfig& config);

/// @throws Error(data) on damaged JSON, a missing or mistyped key, or another protocol version
RunConfig run_config_from_json(const std::string& text);

}  // namespace dynamiccl
