#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "tuner/transport/net_abi.hpp"

namespace dynamiccl::transport {

using nccl_net::Result;

/// What the environment asks of the transport; read once per process.
struct Settings {
  std::string folder;      ///< DYNAMICCL_SHARED_FOLDER; empty: this network steps aside
  unsigned threads = 0;    ///< that copy, of this process; 0: NCCL's own thread copies all
  bool device = false;     ///< DYNAMICCL_TRANSPORT_DEVICE=1: copies between GPUs, an experiment
  bool tcp = true;         ///< peers without the folder are reached by TCP, else refused
  unsigned streams = 8;    ///< that copies between GPUs share
  unsigned priority = 4;   ///< theirs, in levels above the least
  std::string interface_;  ///< NCCL_SOCKET_IFNAME: name prefixes, "^" others, "=" exact
  std::string report;      ///< file that gets one line of counts per process; empty: none
  std::size_t cell_bytes = std::size_t{128} << 10;
  unsigned cells = 16;  ///< of a connection's ring; a power of two
  /// Pieces up to this are copied by the thread that asks; others by the copy threads.
  std::size_t inline_bytes = std::size_t{32} << 10;
};

/// The value of an environment variable, "" where it is not set.
using Variables = std::function<std::string(const char*)>;
/// @param problem set to what is wrong with a variable, the first of them
Settings settings_from(const Variables& variable, std::string& problem);
Settings settings_from_environment(std::string& problem);

/// Copy threads of one process where `ranks` share `cores`, or have them to themselves.
unsigned threads_for(unsigned cores, unsigned ranks);

/// NCCL's logger, where there is one. `text` is one sentence or more, with what to do next.
void set_logger(nccl_net::Logger log);
void say(int level, const std::string& text);
/// Logs a warning and returns `result`: `return fail(kSystemError, "...")`.
Result fail(Result result, const std::string& text);
/// ": " and what errno means
std::string errno_text(int number);
/// What to do after a system call failed so, a sentence after ". ": `otherwise`, which may be
/// empty, where the number does not say it.
std::string advice_for(int number, const std::string& otherwise);

}  // namespace dynamiccl::transport
