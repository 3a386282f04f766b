#pragma once

#include <cstdint>

namespace dynamiccl::nccl_profiler {

class Session;

/// What every handle given to NCCL begins with.
struct Event {
  enum class Kind : std::uint8_t { call, channel, proxy_op, proxy_step };
  Kind kind;
  Session* session;  ///< of calls and their channels
};

}  // namespace dynamiccl::nccl_profiler
