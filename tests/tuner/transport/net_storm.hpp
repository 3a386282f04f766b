#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace dynamiccl::testing {

/// Ranks as processes, each sending messages to the next in a ring of ranks over several
/// connections through the plugin's network interface, as NCCL's proxy does: up to eight under way
/// per connection, polled.
struct StormOptions {
  std::string library;
  std::string folder;
  int version = 11;
  int ranks = 2;
  int channels = 2;
  std::uint64_t messages = 200;  ///< per channel
  std::size_t most_bytes = 300'000;
  std::size_t bytes =
      0;  ///< all messages alike, contents checked at the ends only; 0: random sizes
  std::uint64_t seed = 1;
  int rounds = 1;      ///< of connecting, sending and closing
  int kill_rank = -1;  ///< killed after kill_ms; -1: none
  int kill_ms = 0;
  bool fork_children = false;  ///< each rank makes children that live on, as data loaders do
  bool fork_often = false;     ///< each rank forks all the time; every other child ends at once
  bool folders_apart = false;  ///< each rank has a folder of its own: they meet by TCP
  bool in_turn = false;  ///< a message is sent when the one before has come from the other side
  bool device = false;   ///< messages lie in memory of a GPU (libcuda.so.1 must be loadable)
  int patience_s = 60;   ///< with which a rank waits for a connection, and for anything to move
  bool quiet = true;
};

struct StormResult {
  bool ok = false;
  std::string problem;         ///< of every rank that has one
  double seconds = 0;          ///< of sending
  double slowest_error_s = 0;  ///< from the kill to the last survivor's error
  int errors = 0;              ///< survivors that were told
};

StormResult run_storm(const StormOptions& options);

/// For ranks that are started one by one, each in a container of its own: they pass their handles
/// on through pipes in `meeting`, which all of them see.
void make_meeting(const std::string& meeting, int ranks);
/// Never returns: exits as a rank of a storm does, 0 when all went well. Writes "+" once connected
/// and then what it has to say to stdout.
[[noreturn]] void run_storm_rank(const StormOptions& options, int rank, const std::string& meeting);

}  // namespace dynamiccl::testing
