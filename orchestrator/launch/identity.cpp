#include "orchestrator/launch/identity.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <random>

#include "generated_version.hpp"

namespace dynamiccl {

std::string random_uuid() {
  std::random_device device;
  std::array<std::uint32_t, 4> words{};
  for (auto& word : words) word = device();
  words[1] = (words[1] & 0xFFFF0FFFU) | 0x00004000U;
  words[2] = (words[2] & 0x3FFFFFFFU) | 0x80000000U;
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:04x}{:08x}", words[0], words[1] >> 16,
                     words[1] & 0xFFFFU, words[2] >> 16, words[2] & 0xFFFFU, words[3]);
}

std::string tool_version() {
  return fmt::format("{} ({}{})", version::kVersion, version::kRevision,
                     version::kDirty ? ", dirty" : "");
}

std::string build_description() {
  return fmt::format("{}, {}", version::kCompiler, version::kBuildType);
}

std::string program_folder() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : program.parent_path().string();
}

}  // namespace dynamiccl
