#include "containers/link_rate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "containers/command.hpp"
#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

std::string interface_with_index(const std::string& index) {
  std::error_code code;
  for (std::filesystem::directory_iterator at("/sys/class/net", code), end; !code && at != end;
       at.increment(code)) {
    std::ifstream file(at->path() / "ifindex");
    std::string found;
    file >> found;
    if (found == index) return at->path().filename().string();
  }
  return "";
}

}  // namespace

std::vector<std::string> link_limit_argv(const std::string& interface, double bits_per_s) {
  constexpr double kBucketSeconds = 0.002;
  constexpr double kLeastBucketBytes = 256.0 * 1024;
  const double bucket = std::max(kLeastBucketBytes, bits_per_s / 8 * kBucketSeconds);
  return {"tc",
          "qdisc",
          "add",
          "dev",
          interface,
          "root",
          "tbf",
          "rate",
          fmt::format("{:.0f}bit", bits_per_s),
          "burst",
          fmt::format("{:.0f}b", bucket),
          "latency",
          "50ms"};
}

void limit_link(const Engine& engine, const std::string& container, double bits_per_s) {
  const std::string what = "cannot limit the link of container " + container;
  const std::string index = checked_output(
      what, engine_argv(engine, {"exec", container, "cat", "/sys/class/net/eth0/iflink"}));
  const std::string interface = interface_with_index(index);
  if (interface.empty())
    throw Error(ErrorKind::environment,
                fmt::format("{}: the host's side (interface {}) is not in this network namespace",
                            what, index));
  checked_output(what, link_limit_argv(interface, bits_per_s));
  const std::string pid = checked_output(
      what, engine_argv(engine, {"inspect", "--format", "{{.State.Pid}}", container}));
  std::vector<std::string> inside{"nsenter", "--target", pid, "--net"};
  const auto limit = link_limit_argv("eth0", bits_per_s);
  inside.insert(inside.end(), limit.begin(), limit.end());
  checked_output(what, inside);
}

}  // namespace dynamiccl
