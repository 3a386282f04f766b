#pragma once

#include <functional>

#include "core/wire/record.hpp"
#include "train/plan/exchange_plan.hpp"
#include "workers/communicator.hpp"
#include "workers/transport.hpp"

namespace dynamiccl {

/// Bytes that this rank moves in measured steps, as the kernel counts them (TransportWatch), with
/// what protocols add to the payload.
class StepTraffic {
 public:
  /// Counts from here on. Nothing of the plan is under way. Ranks: all.
  StepTraffic(Communicator& comm, const ExchangePlan& plan);

  /// Does what is no step's, and whose bytes are not counted. Nothing of the plan is under way.
  /// Ranks: all.
  void leave_out(const std::function<void()>& work);

  /// Fills counted_bytes, c2c_measured and details.network; figures has its intensity. Ranks: all.
  /// @param samples that each worker has trained in these steps
  /// @param steps measured ones, rounds of several steps each as one
  /// @param payload_bytes that the plan's messages carried in these steps, as it reckons them
  void conclude(TrainingFigures& figures, double samples, int steps, double payload_bytes);

 private:
  void add_lap();

  Communicator& comm_;
  const ExchangePlan& plan_;
  TransportWatch watch_;
  Traffic moved_;
};

/// Whether a plan's sent bytes are those of messages of our own; a library's all-reduce is reckoned
/// as a ring, whatever it sends.
/// @param queued the library queues its work on a GPU
bool counts_payload(const ExchangePlan& plan, bool queued);

}  // namespace dynamiccl
