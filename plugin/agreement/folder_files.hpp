#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace dynamiccl {

/// Paths of the files of a folder whose names begin and end so, sorted; none where it cannot be
/// read.
inline std::vector<std::string> files_in(const std::string& folder, std::string_view begin,
                                         std::string_view end) {
  namespace fs = std::filesystem;
  std::vector<std::string> paths;
  std::error_code problem;
  for (fs::directory_iterator at(folder, problem), last; !problem && at != last;
       at.increment(problem)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(begin) && name.ends_with(end)) paths.push_back(at->path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace dynamiccl
