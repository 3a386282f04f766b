#include "workers/measure/peak_memory.hpp"

#include <algorithm>
#include <fstream>
#include <string>

namespace dynamiccl {
namespace {

double earlier_peak = 0;  // before the last restart

}  // namespace

double peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != "VmHWM:") continue;
    double kibibytes = 0;
    status >> kibibytes;
    return kibibytes * 1024;
  }
  return 0;
}

double whole_peak_memory_bytes() { return std::max(earlier_peak, peak_memory_bytes()); }

bool restart_peak_memory() {
  const double before = peak_memory_bytes();
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  if (!file) return false;
  earlier_peak = std::max(earlier_peak, before);
  return true;
}

}  // namespace dynamiccl
