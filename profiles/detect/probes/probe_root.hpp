#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiles/detect/probes/known.hpp"

namespace dynamiccl {

/// Files of the machine below a prefix: "/" in use, a recorded tree in tests. Every read is bounded
/// and never blocks or throws: a missing, unreadable, oversized or odd file is a reason.
class ProbeRoot {
 public:
  explicit ProbeRoot(std::string prefix = "/");

  /// At most `limit` bytes of a regular file.
  [[nodiscard]] Known<std::string> text(const std::string& path, std::size_t limit = 65536) const;
  /// The first line, trimmed; an empty one is unknown.
  [[nodiscard]] Known<std::string> line(const std::string& path) const;
  /// The first word of the file as a whole number, decimal or 0x-hexadecimal.
  [[nodiscard]] Known<std::int64_t> integer(const std::string& path) const;
  /// A device's numa_node file; the kernel's -1 is unknown.
  [[nodiscard]] Known<std::int64_t> numa_node(const std::string& path) const;
  /// The text of a symbolic link.
  [[nodiscard]] Known<std::string> link(const std::string& path) const;
  /// The last component of a symbolic link's text.
  [[nodiscard]] Known<std::string> link_name(const std::string& path) const;
  /// Names in a folder, sorted; empty where there is no such folder.
  [[nodiscard]] std::vector<std::string> list(const std::string& path,
                                              std::size_t limit = 1024) const;
  [[nodiscard]] bool exists(const std::string& path) const;
  [[nodiscard]] const std::string& prefix() const { return prefix_; }
  /// The path to open for `path`.
  [[nodiscard]] std::string locate(const std::string& path) const;

 private:
  std::string prefix_;  // without a trailing slash
};

/// "0-3,8" as {0,1,2,3,8}; unknown on anything else. At most 65536 members.
Known<std::vector<int>> parse_cpu_list(std::string_view text);

/// The value after `key` and a colon in "Key:\tvalue" lines (/proc/self/status, /proc/meminfo).
Known<std::string> field_of(const std::string& text, std::string_view key);

}  // namespace dynamiccl
