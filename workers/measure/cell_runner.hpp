#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/wire/record.hpp"
#include "core/wire/run_config.hpp"
#include "workers/aggregation/aggregation_link.hpp"
#include "workers/collectives/operations.hpp"
#include "workers/communicator.hpp"
#include "workers/data/data.hpp"
#include "workers/measure/cell_memory.hpp"
#include "workers/measure/core_wait.hpp"

namespace dynamiccl {

/// Measures one cell after the other. Ranks: all, with the same cells in the same order.
///
/// A sample: all ranks leave a barrier, then each times its own calls with CLOCK_MONOTONIC around
/// the library's call. From the warm-up the ranks agree on how many calls make a sample, so
/// that calls faster than Protocol::batch_target are timed in batches (rooted calls never are, see
/// Layout::rooted), and while measuring on how many samples fit in Protocol::cell_time_cap. A
/// warm-up that alone takes half of that cap ends early. Samples hold no allocation, output or
/// verification.
///
/// Where WorkSettings::late says so, a rank waits after that barrier for a share of its own of that
/// time, and its sample begins with its entering: the longest of the ranks' times holds the wait
/// for the last to come, the shortest (Protocol::rank_aggregation) is about the last one's own.
///
/// On libraries that queue their work on a GPU a sample ends when the GPU is done; the GPU's own
/// time between its first and last call is kept next to it (SampleArrays::device_us). The knob
/// `graph` records a sample's calls as a CUDA graph once and replays it.
///
/// Verification: one call before the warm-up and the last timed call start from a poisoned output
/// and are compared element by element; in place, where a repeated call changes its own input, one
/// more call after the timed ones takes the last one's part.
class CellRunner {
 public:
  /// Allocates the buffers for the largest of the config's cells.
  /// @param epoch_us value of now_us() that SampleArrays::start_us counts from
  CellRunner(Communicator& comm, const RunConfig& config, double epoch_us);

  /// @returns the cell's result on this rank; wrong data is a failed cell, not an exception
  CellRecord run(const WorkCell& cell, int position);

  /// Traffic that the last cell's calls needed at least, on this rank, over all its calls.
  [[nodiscard]] std::uint64_t last_payload_bytes() const { return payload_bytes_; }
  /// Size of the last cell after rounding down to whole elements on every rank.
  [[nodiscard]] std::uint64_t last_used_bytes() const { return used_bytes_; }
  /// Minor page faults of this process in the last cell's timed part, and the calls in it.
  [[nodiscard]] std::uint64_t last_faults() const { return faults_; }
  [[nodiscard]] std::uint64_t last_timed_calls() const { return timed_calls_; }
  /// What went through an aggregator so far, for the transport record; null: nothing.
  [[nodiscard]] nlohmann::json aggregated() const;
  /// Bus id of the GPU that holds this rank's data, "" where none does.
  [[nodiscard]] std::string gpu_pci() const { return memory_.gpu_pci(); }

 private:
  struct Work;
  [[nodiscard]] Place place() const;
  /// @returns why the cell cannot run here, "" when it can and `work` is resolved
  std::string resolve(const WorkCell& cell, Work& work) const;
  std::string reason_unsupported(const WorkCell& cell, Work& work) const;
  void start(Work& work, CellRecord& record);
  void place_buffers(Work& work) const;
  void prepare(const Work& work);
  void check(Work& work, CellRecord& record);
  void judge(const DataVerdict& verdict, CellRecord& record) const;
  void come_late(const Work& work) const;
  void staged_call(const Work& work, const Call& call, PhaseTimes& times, double& collective_us);
  /// The calls of one sample, the last one on the checked data.
  void make_calls(const Work& work, int count, PhaseTimes& times, double& collective_us);
  void capture(const Work& work, int batch);
  double sample(const Work& work, int batch, SampleArrays& samples);
  int warm_up(const Work& work, SampleArrays& samples);
  void measure(Work& work, int batch, CellRecord& record);

  Communicator& comm_;
  const RunConfig& config_;
  double epoch_us_;
  CellMemory memory_;
  CoreWait wait_;
  std::vector<int> nodes_;  ///< of the ranks
  std::optional<AggregationLink> aggregation_;
  int captured_batch_ = 0;  ///< calls in the recorded graph, 0 = none is recorded
  std::uint64_t payload_bytes_ = 0;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t faults_ = 0;
  std::uint64_t timed_calls_ = 0;
};

}  // namespace dynamiccl
