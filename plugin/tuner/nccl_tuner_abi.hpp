#pragma once

#include <cstddef>
#include <cstdint>

// The part of NCCL's binary interface for tuner plugins that is used here (NCCL 2.28,
// src/include/plugin/tuner/tuner_v2.h to tuner_v5.h), so that it builds without NCCL.
namespace dynamiccl::nccl_tuner {

using Result = int;  // ncclResult_t
inline constexpr Result kSuccess = 0;
inline constexpr float kIgnored = -1.0F;  // NCCL_ALGO_PROTO_IGNORE
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);
inline constexpr int kWarn = 2;
inline constexpr int kInfo = 3;
inline constexpr unsigned long kTuning = 0x40;

/// `table` is declared float** but is a flat float[algorithms][protocols] (nccl#1974).
struct PluginV5 {
  const char* name;
  Result (*init)(void** context, std::uint64_t comm_id, std::size_t ranks, std::size_t nodes,
                 Logger log, void* nvlink_domains, void* constants);
  Result (*get_coll_info)(void* context, int function, std::size_t bytes, int pipe_ops,
                          float** table, int algorithms, int protocols, int registered,
                          int* channels);
  Result (*finalize)(void* context);
};
struct PluginV4 {
  const char* name;
  Result (*init)(std::size_t ranks, std::size_t nodes, Logger log, void** context);
  Result (*get_coll_info)(void* context, int function, std::size_t bytes, int pipe_ops,
                          float** table, int algorithms, int protocols, int registered,
                          int* channels);
  Result (*destroy)(void* context);
};
struct PluginV3 {
  const char* name;
  Result (*init)(std::size_t ranks, std::size_t nodes, Logger log, void** context);
  Result (*get_coll_info)(void* context, int function, std::size_t bytes, int pipe_ops,
                          float** table, int algorithms, int protocols, int* channels);
  Result (*destroy)(void* context);
};
struct PluginV2 {
  const char* name;
  Result (*init)(std::size_t ranks, std::size_t nodes, Logger log, void** context);
  Result (*get_coll_info)(void* context, int function, std::size_t bytes, int collnet, int nvls,
                          int pipe_ops, int* algorithm, int* protocol, int* channels);
  Result (*destroy)(void* context);
};

}  // namespace dynamiccl::nccl_tuner
