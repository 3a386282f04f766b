#include "containers/processes.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string_view>

#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// Two neighbouring fields of /proc/PID/stat (proc(5)): where a text begins and ends.
struct TextFields {
  const char* file;   ///< that shows the text
  std::size_t start;  ///< number of the field
};
constexpr TextFields kArguments{"/cmdline", 48};
constexpr TextFields kVariables{"/environ", 50};

/// Where a text without a single letter lies: equal fields that are not 0; "" for any other. A
/// program that is being loaded shows such a place too, for a moment.
std::string place_of_no_text(const std::string& folder, std::size_t start) {
  const std::string text = file_text(folder + "/stat");
  const auto bracket = text.rfind(')');
  if (bracket == std::string::npos) return "";
  std::istringstream fields(text.substr(bracket + 1));
  std::vector<std::string> field;  // from the third on
  for (std::string word; fields >> word;) field.push_back(word);
  const std::size_t at = start - 3;
  if (field.size() <= at + 1 || field[at] != field[at + 1]) return "";
  return field[at] == "0" ? "" : field[at];
}

/// What the process was started with. While it changes its program, the kernel shows no text, or
/// that of a memory which is gone before it is read: who looks once passes over what has just been
/// started.
std::string text_of_process(const std::string& folder, const TextFields& fields) {
  constexpr int kLooks = 100;
  constexpr int kLooksAtNone = 10;
  constexpr useconds_t kPauseUs = 1000;
  std::string place;
  int same = 0;
  for (int look = 1;; ++look) {
    std::string text = file_text(folder + fields.file);
    std::error_code none;
    // Kernel threads, processes that have ended and other people's show no program.
    if (!text.empty() || look == kLooks ||
        std::filesystem::read_symlink(folder + "/exe", none).empty())
      return text;
    const std::string now = place_of_no_text(folder, fields.start);
    same = !now.empty() && now == place ? same + 1 : 1;
    place = now;
    if (!place.empty() && same == kLooksAtNone) return text;
    usleep(kPauseUs);
  }
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

struct Mount {
  std::string root;  ///< what of its file system it shows
  std::string point;
};

std::vector<Mount> own_mounts() {
  std::vector<Mount> mounts;
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const auto fields = split(line, ' ');
    constexpr std::size_t kRoot = 3;
    constexpr std::size_t kMountPoint = 4;
    if (fields.size() > kMountPoint)
      mounts.push_back({unescape_octal(fields[kRoot]), unescape_octal(fields[kMountPoint])});
  }
  return mounts;
}

/// Those whose folder in /proc passes, this process left out.
std::vector<ProcessInfo> processes_that(
    const std::function<bool(const std::string& folder)>& passes) {
  std::vector<ProcessInfo> processes;
  std::error_code code;
  for (std::filesystem::directory_iterator at("/proc", code), end; !code && at != end;
       at.increment(code)) {
    const std::string number = at->path().filename().string();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    ProcessInfo process;
    process.pid = static_cast<pid_t>(std::stol(number));
    const std::string folder = at->path().string();
    if (process.pid == getpid() || !passes(folder)) continue;
    // In this order: a new program has its name before its arguments.
    std::string line = text_of_process(folder, kArguments);
    process.name = std::string(trim(file_text(folder + "/comm")));
    if (!line.empty() && line.back() == '\0') line.pop_back();
    if (!line.empty()) process.argv = split(line, '\0');
    if (!process.name.empty()) processes.push_back(std::move(process));
  }
  return processes;
}

}  // namespace

std::vector<ProcessInfo> list_processes() {
  return processes_that([](const std::string&) { return true; });
}

std::vector<ProcessInfo> list_processes_of(const std::string& program) {
  return processes_that([&](const std::string& folder) {
    std::error_code unseen;
    std::string file = std::filesystem::read_symlink(folder + "/exe", unseen).filename().string();
    if (unseen) return trim(file_text(folder + "/comm")) == program;
    // A build that replaces its file does not end the program.
    constexpr std::string_view kReplaced = " (deleted)";
    if (file.ends_with(kReplaced)) file.resize(file.size() - kReplaced.size());
    return file == program;
  });
}

std::string process_variable(pid_t pid, const std::string& name) {
  const std::string prefix = name + "=";
  const std::string text = text_of_process("/proc/" + std::to_string(pid), kVariables);
  for (const std::string& entry : split(text, '\0'))
    if (entry.rfind(prefix, 0) == 0) return entry.substr(prefix.size());
  return "";
}

std::vector<std::string> mounts_below(const std::string& folder) {
  std::vector<std::string> mounts;
  for (Mount& mount : own_mounts())
    if (mount.point.starts_with(folder + "/")) mounts.push_back(std::move(mount.point));
  std::sort(mounts.begin(), mounts.end(),
            [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  return mounts;
}

std::string mount_root(const std::string& folder) {
  Mount longest;
  for (Mount& mount : own_mounts()) {
    const bool holds =
        mount.point == "/" || folder == mount.point || folder.starts_with(mount.point + "/");
    // Of mounts at one point the last hides the others.
    if (holds && mount.point.size() >= longest.point.size()) longest = std::move(mount);
  }
  return longest.root;
}

}  // namespace dynamiccl
