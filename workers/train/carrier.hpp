#pragma once

#include <string>

#include "workers/communicator.hpp"
#include "workers/train/exchange/exchange_plan.hpp"

namespace dynamiccl {

/// How gradients went, for the reader of a report.
struct GradientCarrier {
  /// "direct", "N communicators" or "host memory over LIBRARY"; servers sum on their CPUs there.
  std::string path;
  /// What carried them calls itself: not the backend's own library where that moves no host memory
  /// (NCCL) and they go by way of it.
  std::string library;
};

/// @param plan of our own methods; ddp's engine brings its own transport
GradientCarrier carrier_of(Communicator& comm, const ExchangePlan& plan);

}  // namespace dynamiccl
