#include "profiles/detect/probes/root_mount.hpp"

#include <algorithm>
#include <vector>

namespace dynamiccl {
namespace {

std::vector<std::string_view> parts_of(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const auto end = std::min(text.find(at), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

}  // namespace

std::string_view root_mount(std::string_view mounts) {
  std::string_view found;
  for (const auto line : parts_of(mounts, '\n')) {
    const auto fields = parts_of(line, ' ');
    if (fields.size() > 4 && fields[4] == "/") found = line;
  }
  return found;
}

bool is_whole_disk(std::string_view mount) {
  const auto fields = parts_of(mount, ' ');
  const auto separator = std::find(fields.begin(), fields.end(), "-");
  if (fields.size() < 5 || std::distance(separator, fields.end()) < 3) return false;
  const std::string_view source = *(separator + 2);
  return fields[3] == "/" && source.starts_with("/dev/") &&
         !source.starts_with("/dev/mapper/docker");
}

}  // namespace dynamiccl
