#include "containers/processes.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream stream;
  stream << file.rdbuf();
  return stream.str();
}

/// mountinfo writes space, tab, newline and backslash as \ooo.
std::string unescape_octal(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      result.push_back(static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8)));
      i += 3;
    } else {
      result.push_back(text[i]);
    }
  }
  return result;
}

}  // namespace

std::vector<ProcessInfo> list_processes() {
  std::vector<ProcessInfo> processes;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", code)) {
    const std::string folder = entry.path().filename().string();
    if (folder.find_first_not_of("0123456789") != std::string::npos) continue;
    ProcessInfo process;
    process.pid = static_cast<pid_t>(std::stol(folder));
    if (process.pid == getpid()) continue;
    process.name = std::string(trim(content_of(entry.path() / "comm")));
    std::string line = content_of(entry.path() / "cmdline");
    if (!line.empty() && line.back() == '\0') line.pop_back();
    if (!line.empty()) process.argv = split(line, '\0');
    if (!process.name.empty()) processes.push_back(std::move(process));
  }
  return processes;
}

std::string process_variable(pid_t pid, const std::string& name) {
  const std::string prefix = name + "=";
  for (const std::string& entry :
       split(content_of("/proc/" + std::to_string(pid) + "/environ"), '\0'))
    if (entry.rfind(prefix, 0) == 0) return entry.substr(prefix.size());
  return "";
}

std::vector<std::string> mounts_below(const std::string& folder) {
  std::vector<std::string> mounts;
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const auto fields = split(line, ' ');
    constexpr std::size_t kMountPoint = 4;
    if (fields.size() <= kMountPoint) continue;
    const std::string point = unescape_octal(fields[kMountPoint]);
    if (point.rfind(folder + "/", 0) == 0) mounts.push_back(point);
  }
  std::sort(mounts.begin(), mounts.end(),
            [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  return mounts;
}

}  // namespace dynamiccl
