#include "profiles/detect/probes/control_group.hpp"

#include <cstdio>

namespace dynamiccl {
namespace {

constexpr std::size_t kMostLevels = 32;

bool names(std::string_view controllers, std::string_view wanted) {
  for (;;) {
    const std::size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == wanted) return true;
    if (comma == std::string_view::npos) return false;
    controllers.remove_prefix(comma + 1);
  }
}

}  // namespace

std::optional<std::string> group_path_in(std::string_view text, std::string_view controller) {
  std::optional<std::string> found;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() == text.size() ? line.size() : line.size() + 1);
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second != std::string_view::npos &&
        names(line.substr(first + 1, second - first - 1), controller))
      found = line.substr(second + 1);
  }
  return found;
}

std::vector<std::string> group_folders(const std::string& mounted, std::string path) {
  std::vector<std::string> folders;
  while (!path.empty() && path != "/" && folders.size() < kMostLevels) {
    folders.push_back(mounted + path);
    const std::size_t slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
  folders.push_back(mounted);
  return folders;
}

std::optional<double> quota_cores_in(const std::string& cpu_max) {
  double quota = 0;
  double period = 0;
  // "max" is no number.
  if (std::sscanf(cpu_max.c_str(), "%lf %lf", &quota, &period) != 2 || !(quota > 0) ||
      !(period > 0))
    return std::nullopt;
  return quota / period;
}

std::optional<double> quota_cores_of(std::optional<std::int64_t> quota,
                                     std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

}  // namespace dynamiccl
