#include "benchmarks/workers/boundary_resources.hpp"

#include <cuda_runtime.h>
#include <dirent.h>
#include <dlfcn.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace dynamiccl::boundary {
namespace {

constexpr std::size_t kLeastPiece = std::size_t{2} << 20;

int entries(const char* path) {
  int count = 0;
  DIR* folder = opendir(path);
  if (folder == nullptr) throw std::runtime_error(std::string("cannot read ") + path);
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(folder);
  return count;
}

}  // namespace

Resources resources() {
  Resources now;
  std::size_t all = 0;
  if (cudaDeviceSynchronize() != cudaSuccess || cudaMemGetInfo(&now.gpu_free, &all) != cudaSuccess)
    throw std::runtime_error("the GPU does not say how much of its memory is free");
  now.descriptors = entries("/proc/self/fd");
  now.threads = entries("/proc/self/task");
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line); ++now.mappings)
    now.rings += line.find("dynamiccl-ring") != std::string::npos ? 1 : 0;
  return now;
}

std::vector<std::string> threads() {
  std::vector<std::string> lines;
  DIR* folder = opendir("/proc/self/task");
  if (folder == nullptr) return {"none to be seen: no /proc of this process"};
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] == '.') continue;
    const std::string place = std::string("/proc/self/task/") + entry->d_name + "/";
    std::string stat, call, wait;
    std::getline(std::ifstream(place + "stat"), stat);
    std::getline(std::ifstream(place + "syscall"), call);
    std::getline(std::ifstream(place + "wchan"), wait);
    // "ID (NAME) STATE ...", of which the 14th and 15th words are ticks in the program and kernel.
    const std::size_t end = stat.rfind(')');
    if (end == std::string::npos) continue;
    std::istringstream words(stat.substr(end + 1));
    std::vector<std::string> word(13);
    for (std::string& each : word) words >> each;
    lines.push_back(stat.substr(0, end + 1) + " " + word[0] + ", ticks " + word[11] + " + " +
                    word[12] + ", " + call.substr(0, call.find(' ')) + " " + wait);
  }
  closedir(folder);
  return lines;
}

std::string transport_state() {
  const char* path = std::getenv("NCCL_NET_PLUGIN");
  void* plugin = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (plugin == nullptr) return "not loaded";
  auto* state =
      reinterpret_cast<void (*)(char*, std::size_t)>(dlsym(plugin, "dynamiccl_transport_state"));
  if (state == nullptr) return "a version that does not say";
  std::vector<char> text(std::size_t{64} << 10);
  state(text.data(), text.size());
  return text.data();
}

std::string text(const Resources& r) {
  return "{\"descriptors\": " + std::to_string(r.descriptors) +
         ", \"mappings\": " + std::to_string(r.mappings) +
         ", \"rings\": " + std::to_string(r.rings) + ", \"threads\": " + std::to_string(r.threads) +
         ", \"gpu_free_mib\": " + std::to_string(r.gpu_free >> 20) + "}";
}

std::string grown(const Resources& before, const Resources& after, int uses) {
  std::string names;
  const auto add = [&](const char* name) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  };
  if (after.descriptors > before.descriptors) add("descriptors");
  if (after.rings > before.rings) add("rings");
  if (after.mappings - before.mappings >= uses) add("mappings");
  if (after.threads - before.threads >= uses) add("threads");
  if (after.gpu_free + static_cast<std::size_t>(uses) * kLeastPiece <= before.gpu_free)
    add("memory of the GPU");
  return names;
}

}  // namespace dynamiccl::boundary
