#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>

namespace dynamiccl {

/// The first `most_bytes` of a file, whole where it has no more; nullopt where it cannot be opened
/// or read to there. Never throws for it: a folder opens and does not read, and a file of a process
/// in /proc may begin and then end with it.
std::optional<std::string> read_file(
    const std::string& path, std::size_t most_bytes = std::numeric_limits<std::size_t>::max());

/// The same, "" where it cannot be read.
std::string file_text(const std::string& path,
                      std::size_t most_bytes = std::numeric_limits<std::size_t>::max());

}  // namespace dynamiccl
