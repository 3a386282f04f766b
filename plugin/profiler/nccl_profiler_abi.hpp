#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

// The part of NCCL's binary interface for profiler plugins that is used here (NCCL 2.28,
// src/include/plugin/profiler/profiler_v4.h and _v5.h), so that it builds without NCCL.
namespace dynamiccl::nccl_profiler {

using Result = int;  // ncclResult_t
inline constexpr Result kSuccess = 0;
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

inline constexpr std::uint64_t kColl = 1U << 1;
inline constexpr std::uint64_t kProxyOp = 1U << 3;
inline constexpr std::uint64_t kProxyStep = 1U << 4;
inline constexpr std::uint64_t kKernelChannel = 1U << 6;
inline constexpr int kProxyStepSendWait = 9;   ///< the network sends
inline constexpr int kProxyStepRecvWait = 10;  ///< nothing has come yet
inline constexpr int kKernelChannelStop = 22;

struct CollV4 {
  std::uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  std::size_t count;
  int root;
  const char* datatype;
  std::uint8_t channels;
  std::uint8_t warps;
  const char* algorithm;
  const char* protocol;
};
struct CollV5 : CollV4 {
  void* parent_group;
};
struct KernelChannel {
  std::uint8_t channel;
  std::uint64_t timer;  ///< GPU's globaltimer at the start, nanoseconds
};
struct ProxyOperation {
  pid_t process;  ///< whose call it is of: its parent is a handle of that process
  std::uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int is_send;
};
/// Larger than any member that is not named here.
union DetailsV4 {
  CollV4 coll;
  ProxyOperation proxy;
  KernelChannel kernel;
};
union DetailsV5 {
  CollV4 coll;  // v5 appends to it
  ProxyOperation proxy;
  KernelChannel kernel;
};
struct EventV4 {
  std::uint8_t type;
  void* parent;
  int rank;
  DetailsV4 details;
};
struct EventV5 {
  std::uint64_t type;
  void* parent;
  int rank;
  DetailsV5 details;
};
union StateArguments {
  struct {
    std::uint64_t timer;  ///< GPU's globaltimer at the stop, nanoseconds
  } kernel;
};

struct PluginV5 {
  const char* name;
  Result (*init)(void** context, std::uint64_t comm_id, int* mask, const char* comm_name, int nodes,
                 int ranks, int rank, Logger log);
  Result (*start_event)(void* context, void** handle, EventV5* event);
  Result (*stop_event)(void* handle);
  Result (*record_event_state)(void* handle, int state, StateArguments* arguments);
  Result (*finalize)(void* context);
};
struct PluginV4 {
  const char* name;
  Result (*init)(void** context, int* mask, const char* comm_name, std::uint64_t comm_id, int nodes,
                 int ranks, int rank, Logger log);
  Result (*start_event)(void* context, void** handle, EventV4* event);
  Result (*stop_event)(void* handle);
  Result (*record_event_state)(void* handle, int state, StateArguments* arguments);
  Result (*finalize)(void* context);
};

}  // namespace dynamiccl::nccl_profiler
