#pragma once

#include <string>

#include "train/plan/exchange_plan.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// How gradients went, for the reader of a report.
struct GradientCarrier {
  /// "direct", "N communicators", "host memory over LIBRARY"; and who sums, where servers do.
  std::string path;
  /// What carried them calls itself: not the backend's own library where that moves no host memory
  /// (NCCL) and they go by way of it.
  std::string library;
};

/// @param plan of our own methods; ddp's engine brings its own transport
GradientCarrier carrier_of(Communicator& comm, const ExchangePlan& plan);

}  // namespace dynamiccl
