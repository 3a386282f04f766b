#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/file_descriptor.hpp"

namespace dynamiccl {

/// Where a function of an ELF file begins in it, by the file's own symbols; nullopt = it has none
/// of that name.
std::optional<std::uint64_t> place_in_file(const std::string& file, const std::string& function);

/// A call as it begins: its first four arguments, as integers or pointers.
struct SeenEntry {
  std::size_t function = 0;  ///< its place among the watched ones
  std::uint64_t second = 0;
  std::uint64_t third = 0;
  std::uint64_t fourth = 0;
  std::uint64_t first = 0;
};

/// Sees one thread of another process begin calls, from outside: probes of the kernel
/// (perf_event_open), which are gone with the object, and with this process however it ends. Each
/// call costs that thread some microseconds. Not thread-safe.
class EntryWatch {
 public:
  /// Sets a probe for each, some ten milliseconds.
  /// @param file the library, as this process reaches it: "/proc/77/root/usr/lib/libmpi.so.40"
  /// @param places of functions in it
  EntryWatch(pid_t thread, const std::string& file, const std::vector<std::uint64_t>& places);
  ~EntryWatch();
  EntryWatch(const EntryWatch&) = delete;
  EntryWatch& operator=(const EntryWatch&) = delete;

  /// Why nothing is seen: the kernel has no probes, it takes a privilege; "" = it is.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  /// Whether that is the problem: the thread has ended.
  [[nodiscard]] bool thread_is_over() const { return over_; }
  /// Calls since the last time; of very many some are missing.
  std::vector<SeenEntry> take();

 private:
  std::vector<FileDescriptor> probes_;
  std::vector<std::uint64_t> ids_;  ///< of the probes, as the kernel numbers them
  void* ring_ = nullptr;
  std::size_t bytes_ = 0;  ///< of it
  std::string problem_;
  bool over_ = false;
};

}  // namespace dynamiccl
