#include "profiles/detect/probes/probe_root.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <memory>

#include "core/vocabulary/file_descriptor.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

constexpr int kMaxCpu = 65535;

std::string why(const std::string& path) { return path + ": " + std::strerror(errno); }

template <class T>
bool parse_whole(std::string_view text, T& value, int base = 10) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

}  // namespace

ProbeRoot::ProbeRoot(std::string prefix) : prefix_(std::move(prefix)) {
  while (!prefix_.empty() && prefix_.back() == '/') prefix_.pop_back();
}

std::string ProbeRoot::locate(const std::string& path) const { return prefix_ + path; }

Known<std::string> ProbeRoot::text(const std::string& path, std::size_t limit) const {
  using Result = Known<std::string>;
  // O_NONBLOCK: a pipe in the file's place must not hold the program.
  const FileDescriptor file(open(locate(path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return Result::unknown(why(path));
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return Result::unknown(why(path));
  if (!S_ISREG(status.st_mode)) return Result::unknown(path + ": not a regular file");
  std::string content;
  while (content.size() < limit) {
    char buffer[16384];
    const std::size_t room = std::min(sizeof buffer, limit - content.size());
    const ssize_t count = read(file.get(), buffer, room);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Result::unknown(why(path));
    if (count == 0) break;
    content.append(buffer, static_cast<std::size_t>(count));
  }
  return {std::move(content), ""};
}

Known<std::string> ProbeRoot::line(const std::string& path) const {
  auto content = text(path, 4096);
  if (!content) return content;
  const std::string first{trim(content->substr(0, content->find('\n')))};
  if (first.empty()) return Known<std::string>::unknown(path + ": empty");
  return {clean_text(first), ""};
}

Known<std::int64_t> ProbeRoot::integer(const std::string& path) const {
  using Result = Known<std::int64_t>;
  const auto content = line(path);
  if (!content) return Result::unknown(content.reason);
  std::string_view word = *content;
  word = word.substr(0, word.find_first_of(" \t"));
  const bool hexadecimal = word.starts_with("0x");
  std::int64_t value = 0;
  if (!parse_whole(hexadecimal ? word.substr(2) : word, value, hexadecimal ? 16 : 10))
    return Result::unknown(path + ": \"" + clean_text(word, 40) + "\" is no whole number");
  return {value, ""};
}

Known<std::int64_t> ProbeRoot::numa_node(const std::string& path) const {
  auto node = integer(path);
  if (node && *node < 0) return Known<std::int64_t>::unknown("the kernel names no NUMA node");
  return node;
}

Known<std::string> ProbeRoot::link(const std::string& path) const {
  char buffer[PATH_MAX];
  const ssize_t count = readlink(locate(path).c_str(), buffer, sizeof buffer);
  if (count < 0) return Known<std::string>::unknown(why(path));
  return {clean_text({buffer, static_cast<std::size_t>(count)}), ""};
}

Known<std::string> ProbeRoot::link_name(const std::string& path) const {
  auto target = link(path);
  if (!target) return target;
  return {target->substr(target->rfind('/') + 1), ""};
}

std::vector<std::string> ProbeRoot::list(const std::string& path, std::size_t limit) const {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(locate(path).c_str()), closedir);
  if (!folder) return names;
  while (names.size() < limit) {
    const dirent* entry = readdir(folder.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool ProbeRoot::exists(const std::string& path) const {
  return access(locate(path).c_str(), F_OK) == 0;
}

Known<std::vector<int>> parse_cpu_list(std::string_view text) {
  using Result = Known<std::vector<int>>;
  std::vector<int> cpus;
  for (const std::string& part : split(trim(text), ',')) {
    const std::size_t dash = part.find('-');
    int first = 0;
    int last = 0;
    const bool valid =
        parse_whole(std::string_view(part).substr(0, dash), first) &&
        (dash == std::string::npos ? (last = first, true)
                                   : parse_whole(std::string_view(part).substr(dash + 1), last));
    if (!valid || first < 0 || last < first || last > kMaxCpu)
      return Result::unknown("\"" + clean_text(text, 80) + "\" is no list of CPUs");
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return {std::move(cpus), ""};
}

Known<std::string> field_of(const std::string& text, std::string_view key) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (!line.starts_with(key)) continue;
    const std::string_view after = trim(line.substr(key.size()));
    if (after.starts_with(':')) return {std::string(trim(after.substr(1))), ""};
  }
  return Known<std::string>::unknown("no \"" + std::string(key) + "\" line");
}

}  // namespace dynamiccl
