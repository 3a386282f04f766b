#include "workers/backends/nccl_witness.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace dynamiccl {
namespace {

std::string program_folder() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  const std::string program(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  return program.substr(0, program.find_last_of('/'));
}

}  // namespace

std::string plugin_path() { return program_folder() + "/libdynamiccl-nccl-plugin.so"; }

void NcclWitness::load() {
  const char* asked = std::getenv("DYNAMICCL_NCCL_PROFILER");
  if (asked != nullptr && std::string_view(asked) == "0") {
    state_ = "off: DYNAMICCL_NCCL_PROFILER=0";
    return;
  }
  if (const char* other = std::getenv("NCCL_PROFILER_PLUGIN"); other != nullptr) {
    state_ = std::string("off: NCCL_PROFILER_PLUGIN names ") + other;
    return;
  }
  const std::string path = plugin_path();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    state_ = std::string("off: ") + dlerror();
    return;
  }
  state_ = path;
  watch_ = reinterpret_cast<decltype(watch_)>(dlsym(library, "dynamiccl_profiler_watch"));
  last_ = reinterpret_cast<decltype(last_)>(dlsym(library, "dynamiccl_profiler_last"));
  channels_ = reinterpret_cast<decltype(channels_)>(dlsym(library, "dynamiccl_profiler_channels"));
  take_channels_ = reinterpret_cast<decltype(take_channels_)>(
      dlsym(library, "dynamiccl_profiler_take_channels"));
  setenv("NCCL_PROFILER_PLUGIN", path.c_str(), 1);
  setenv("DYNAMICCL_PROFILE_EVENTS", "off", 0);
}

void NcclWitness::watch() const {
  if (watch_ != nullptr) watch_(1);
}

void NcclWitness::forget() const {
  std::array<char, 8> ignored{};
  if (last_ != nullptr) last_(ignored.data(), ignored.size());
}

std::string NcclWitness::conclude() const {
  if (watch_ == nullptr || last_ == nullptr) return "";
  std::array<char, 128> text{};
  last_(text.data(), text.size());
  watch_(0);
  return text.data();
}

void NcclWitness::watch_channels(ChannelDetail detail) const {
  if (channels_ != nullptr) channels_(static_cast<int>(detail));
}

std::vector<ChannelTimes> NcclWitness::take_channels() const {
  if (take_channels_ == nullptr) return {};
  constexpr std::size_t kMostChannels = 64;  // NCCL's MAXCHANNELS
  constexpr double kNs = 1e-3;
  std::array<std::uint64_t, 3 * kMostChannels> ns{};
  take_channels_(ns.data(), kMostChannels);
  std::vector<ChannelTimes> channels;
  for (std::size_t c = 0; c < kMostChannels; ++c) {
    const auto us = [&](std::size_t part) { return kNs * static_cast<double>(ns[3 * c + part]); };
    if (ns[3 * c] + ns[3 * c + 1] == 0) continue;
    channels.resize(c + 1);
    channels[c] = {us(0), us(1), us(2)};
  }
  return channels;
}

}  // namespace dynamiccl
