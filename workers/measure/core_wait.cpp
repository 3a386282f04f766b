#include "workers/measure/core_wait.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <utility>

namespace dynamiccl {

CoreWait::CoreWait(std::string tasks) : tasks_(std::move(tasks)) { find_threads(); }

CoreWait::~CoreWait() {
  for (const auto& [id, thread] : threads_) close(thread.file);
}

void CoreWait::find_threads() {
  std::error_code ended;
  for (std::filesystem::directory_iterator folder(tasks_, ended), end; !ended && folder != end;
       folder.increment(ended)) {
    const std::string id = folder->path().filename();
    if (threads_.contains(id)) continue;
    const int file = open((folder->path() / "schedstat").c_str(), O_RDONLY | O_CLOEXEC);
    if (file >= 0) threads_[id].file = file;
  }
}

double CoreWait::read_us() {
  constexpr double kMicrosPerNano = 1e-3;
  double sum_us = 0;
  for (auto& [id, thread] : threads_) {
    // "TIME_ON_CPU RUN_DELAY TIMESLICES", nanoseconds.
    std::array<char, 96> text{};
    const auto size = pread(thread.file, text.data(), text.size(), 0);
    const char* end = text.data() + std::max<ssize_t>(size, 0);
    const char* second = std::find(static_cast<const char*>(text.data()), end, ' ');
    std::uint64_t nanos = 0;
    if (second != end && std::from_chars(second + 1, end, nanos).ec == std::errc())
      thread.waited_us = static_cast<double>(nanos) * kMicrosPerNano;
    sum_us += thread.waited_us;
  }
  return sum_us;
}

void CoreWait::add_since(double since_us, int calls, std::vector<double>& waited_us) {
  if (known()) waited_us.push_back(std::max(0.0, read_us() - since_us) / calls);
}

}  // namespace dynamiccl
