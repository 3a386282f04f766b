#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {

/// Before a file that somebody named is read whole: a pipe would wait for its writer whatever
/// signal comes, and a device has no end.
/// @throws Error(input) when it is no regular file or larger; one that is not there passes
inline void require_whole_file(const std::string& path, std::uintmax_t most_mib = 64) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error || !std::filesystem::exists(status)) return;
  if (!std::filesystem::is_regular_file(status))
    throw Error(ErrorKind::input, path +
                                      ": is no regular file; name a file, or write into one "
                                      "first what a pipe or device gives");
  const auto bytes = std::filesystem::file_size(path, error);
  if (!error && bytes > most_mib << 20)
    throw Error(ErrorKind::input,
                fmt::format("{}: {} bytes, more than the {} MiB that such a file may have", path,
                            bytes, most_mib));
}

}  // namespace dynamiccl
