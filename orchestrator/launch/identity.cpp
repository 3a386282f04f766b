#include "orchestrator/launch/identity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string_view>
#include <vector>

#include "core/vocabulary/error.hpp"
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

namespace {

/// Next to a program that lies where it was built: names the tree that its sources are in.
constexpr const char* kSourceTree = "dynamiccl.source-tree";

/// What may lie next to the program, and the package that brings it.
struct Part {
  std::string_view name;
  std::string_view file;
  std::string_view package;
};
constexpr std::array kParts{
    Part{"worker for Open MPI", "dynamiccl-worker-openmpi", "dynamiccl-worker-openmpi"},
    Part{"worker for MPICH", "dynamiccl-worker-mpich", "dynamiccl-worker-mpich"},
    Part{"worker for Gloo", "dynamiccl-worker", "dynamiccl-worker-gloo"},
    Part{"trainer for Open MPI", "dynamiccl-trainer-openmpi", "dynamiccl-trainers"},
    Part{"trainer for MPICH", "dynamiccl-trainer-mpich", "dynamiccl-trainers"},
    Part{"trainer for Gloo", "dynamiccl-trainer", "dynamiccl-trainers"},
    Part{"leader", "dynamiccl-leader", "dynamiccl"},
    Part{"probe", "dynamiccl-probe", "dynamiccl"},
    Part{"NCCL plugin", "libdynamiccl-nccl-plugin.so", "dynamiccl-nccl-plugin"}};

}  // namespace

std::string why_part_is_absent(const std::string& path, std::string_view how_to_build) {
  const std::filesystem::path file(path);
  const auto part = std::find_if(kParts.begin(), kParts.end(), [&](const Part& one) {
    return one.file == file.filename().string();
  });
  std::error_code error;
  const bool in_build = std::filesystem::exists(file.parent_path() / kSourceTree, error);
  if (in_build || part == kParts.end())
    return fmt::format("{} is not built: {}", path, how_to_build);
  return fmt::format(
      "{} is not installed: it comes with the package {} (apt-get install ./{}_*.deb), or with "
      "`cmake --install` of a build that has it",
      path, part->package, part->package);
}

std::string installation_text() {
  std::string present;
  std::string absent;
  for (const auto& part : kParts) {
    std::error_code error;
    auto& list = std::filesystem::exists(fmt::format("{}/{}", program_folder(), part.file), error)
                     ? present
                     : absent;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", part.name);
  }
  std::string text = fmt::format("dynamiccl {}, {}\nin {}: {}", tool_version(), build_description(),
                                 program_folder(), present.empty() ? "nothing else" : present);
  if (!absent.empty()) text += fmt::format("\nnot there: {}", absent);
  return text;
}

std::string program_folder() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : program.parent_path().string();
}

std::string data_path(const std::string& name) {
  namespace fs = std::filesystem;
  constexpr int kLevels = 5;
  std::vector<fs::path> roots;
  fs::path folder = program_folder();
  for (int level = 0; level < kLevels && !folder.empty(); ++level, folder = folder.parent_path()) {
    roots.push_back(folder / "share" / "dynamiccl");
    roots.push_back(folder);
  }
  // A build folder outside its source tree says where that is.
  std::string told;
  if (std::ifstream file(program_folder() + "/" + kSourceTree); std::getline(file, told))
    roots.emplace_back(told);
  for (const auto& root : roots) {
    std::error_code error;
    if (fs::exists(root / name, error)) return fs::canonical(root / name).string();
  }
  throw Error(ErrorKind::environment,
              fmt::format("{} comes with this program, and neither {} nor a folder above it has it "
                          "(or has share/dynamiccl/{}); install the program again, whole",
                          name, program_folder(), name));
}

}  // namespace dynamiccl
