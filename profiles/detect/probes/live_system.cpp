#include "profiles/detect/probes/live_system.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>

#include "profiles/detect/probes/one_host.hpp"

extern char** environ;

namespace dynamiccl {
namespace {

constexpr const char* kNotLive = "a recorded tree is read, not a live system";
constexpr std::size_t kMaxReadVariables = 4096;

int prefix_length(const sockaddr* mask) {
  if (mask == nullptr) return 0;
  if (mask->sa_family == AF_INET) {
    sockaddr_in address{};
    std::memcpy(&address, mask, sizeof address);
    return std::popcount(address.sin_addr.s_addr);
  }
  sockaddr_in6 address{};
  std::memcpy(&address, mask, sizeof address);
  int bits = 0;
  for (const unsigned char byte : address.sin6_addr.s6_addr) bits += std::popcount(byte);
  return bits;
}

std::string address_text(const ifaddrs& entry) {
  char text[INET6_ADDRSTRLEN] = {};
  if (entry.ifa_addr->sa_family == AF_INET) {
    sockaddr_in address{};
    std::memcpy(&address, entry.ifa_addr, sizeof address);
    inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  } else {
    sockaddr_in6 address{};
    std::memcpy(&address, entry.ifa_addr, sizeof address);
    inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof text);
  }
  return std::string(text) + "/" + std::to_string(prefix_length(entry.ifa_netmask));
}

/// What a preloaded library says to NCCL is in no environment (docs/one-host.md).
void add_answers(std::vector<std::pair<std::string, std::string>>& variables) {
  for (const char* name : kOneHostAnswers) {
    const bool set = std::any_of(variables.begin(), variables.end(),
                                 [&](const auto& one) { return one.first == name; });
    if (const char* value = set ? nullptr : std::getenv(name); value != nullptr)
      variables.emplace_back(name, value);
  }
}

class Machine final : public LiveSystem {
 public:
  explicit Machine(GpuReader gpu_reader) : gpu_reader_(gpu_reader) {}

  [[nodiscard]] Known<CmaTest> cma() const override { return test_cma(); }

  [[nodiscard]] Known<FilesystemFacts> filesystem(const std::string& path) const override {
    struct stat status {};
    struct statvfs volume {};
    if (stat(path.c_str(), &status) != 0 || statvfs(path.c_str(), &volume) != 0)
      return Known<FilesystemFacts>::unknown(path + ": " + std::strerror(errno));
    FilesystemFacts facts;
    facts.device = status.st_dev;
    facts.inode = status.st_ino;
    facts.size = Bytes(volume.f_blocks * volume.f_frsize);
    facts.free = Bytes(volume.f_bavail * volume.f_frsize);
    facts.writable = access(path.c_str(), W_OK) == 0 && (volume.f_flag & ST_RDONLY) == 0;
    return {facts, ""};
  }

  [[nodiscard]] Known<MeetingFolder> meeting_folder(const std::string& path) const override {
    return {look_at_meeting_folder(path), ""};
  }

  [[nodiscard]] Known<std::vector<InterfaceAddresses>> interfaces() const override {
    using Result = Known<std::vector<InterfaceAddresses>>;
    ifaddrs* first = nullptr;
    if (getifaddrs(&first) != 0)
      return Result::unknown(std::string("getifaddrs: ") + std::strerror(errno));
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(first, freeifaddrs);
    std::map<std::string, InterfaceAddresses> by_name;
    for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
      InterfaceAddresses& found = by_name[entry->ifa_name];
      found.name = entry->ifa_name;
      found.up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
      if (found.index == 0) found.index = static_cast<int>(if_nametoindex(entry->ifa_name));
      if (entry->ifa_addr == nullptr) continue;
      const int family = entry->ifa_addr->sa_family;
      if (family == AF_INET || family == AF_INET6) found.addresses.push_back(address_text(*entry));
    }
    std::vector<InterfaceAddresses> all;
    for (auto& [name, found] : by_name) all.push_back(std::move(found));
    return {std::move(all), ""};
  }

  [[nodiscard]] Known<std::string> libc_version() const override {
    return {gnu_get_libc_version(), ""};
  }

  [[nodiscard]] Known<std::vector<std::pair<std::string, std::string>>> environment()
      const override {
    std::vector<std::pair<std::string, std::string>> variables;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      if (variables.size() >= kMaxReadVariables) break;
      const std::string_view text = *entry;
      const std::size_t equals = text.find('=');
      if (equals == std::string_view::npos) continue;
      variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
    add_answers(variables);
    return {std::move(variables), ""};
  }

  [[nodiscard]] Known<nlohmann::json> gpus() const override {
    if (gpu_reader_ == nullptr)
      return Known<nlohmann::json>::unknown(
          "NVML was not asked: switched off, or a static program");
    return gpu_reader_();
  }

 private:
  GpuReader gpu_reader_;
};

}  // namespace

Known<CmaTest> LiveSystem::cma() const { return Known<CmaTest>::unknown(kNotLive); }
Known<FilesystemFacts> LiveSystem::filesystem(const std::string&) const {
  return Known<FilesystemFacts>::unknown(kNotLive);
}
Known<MeetingFolder> LiveSystem::meeting_folder(const std::string&) const {
  return Known<MeetingFolder>::unknown(kNotLive);
}
Known<std::vector<InterfaceAddresses>> LiveSystem::interfaces() const {
  return Known<std::vector<InterfaceAddresses>>::unknown(kNotLive);
}
Known<std::string> LiveSystem::libc_version() const {
  return Known<std::string>::unknown(kNotLive);
}
Known<std::vector<std::pair<std::string, std::string>>> LiveSystem::environment() const {
  return Known<std::vector<std::pair<std::string, std::string>>>::unknown(kNotLive);
}
Known<nlohmann::json> LiveSystem::gpus() const { return Known<nlohmann::json>::unknown(kNotLive); }

std::unique_ptr<LiveSystem> make_live_system(GpuReader gpu_reader) {
  return std::make_unique<Machine>(gpu_reader);
}

}  // namespace dynamiccl
