#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {

/// Before work whose result is to be written there: hours are not lost to a mistyped name.
/// @throws Error(input) where no file can be made under the name, whose folder has to be there
inline void require_place(const std::string& path, const std::string& option) {
  std::error_code error;
  const auto folder = std::filesystem::absolute(path, error).parent_path();
  std::string why;
  if (std::filesystem::is_directory(path, error))
    why = "it is a folder";
  else if (!std::filesystem::is_directory(folder, error))
    why = "its folder is not there";
  else if (::access(folder.c_str(), W_OK | X_OK) != 0)
    why = "its folder may not be written to";
  if (!why.empty())
    throw Error(ErrorKind::input,
                fmt::format("{} {}: {}; name another file for it", option, path, why));
}

}  // namespace dynamiccl
