#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dynamiccl::boundary {

/// What this process has taken of the system, and what is free of its GPU.
struct Resources {
  int descriptors = 0;
  int mappings = 0;  ///< lines of /proc/self/maps
  int rings = 0;     ///< of them: memory of the transport's connections
  int threads = 0;
  std::size_t gpu_free = 0;  ///< bytes, after all work on it has ended
};

/// @throws std::runtime_error when the GPU does not answer
Resources resources();
/// Of each thread of this process: its name, its state, the CPU time that it took so far and in
/// which call of the kernel it is (where that may be read).
std::vector<std::string> threads();
/// What our network plugin, where NCCL has loaded it (NCCL_NET_PLUGIN), has under way.
std::string transport_state();
/// A JSON object.
std::string text(const Resources& resources);
/// What of it there is more of by at least one for each use in between (of the GPU: 2 MiB, its
/// least piece), descriptors and rings by any; empty: nothing.
std::string grown(const Resources& before, const Resources& after, int uses);

}  // namespace dynamiccl::boundary
