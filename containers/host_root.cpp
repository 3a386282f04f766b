#include "containers/host_root.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "containers/paths.hpp"
#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

/// Where drivers put libcuda.so.1 and libnvidia-ml.so.1 besides the folders of packages.
constexpr std::array kDriverFolders{"/usr/local/nvidia", "/usr/lib/nvidia", "/run/nvidia/driver",
                                    "/var/lib/nvidia"};

bool below(const std::string& path, const std::string& folder) {
  return path == folder || path.rfind(folder + "/", 0) == 0;
}

}  // namespace

bool host_root_wanted() {
  const char* source = std::getenv("DYNAMICCL_IMAGE_SOURCE");
  const std::string_view value = source == nullptr ? "" : source;
  if (value.empty() || value == "packages") return false;
  if (value == "host-root") return true;
  throw Error(ErrorKind::input,
              fmt::format("DYNAMICCL_IMAGE_SOURCE is \"{}\": give \"packages\" (an image from the "
                          "package mirror) or \"host-root\" (this machine's own files)",
                          value));
}

std::string host_root_folder() { return cache_folder() + "/host-root"; }

void make_host_root() {
  const fs::path root = host_root_folder();
  std::error_code code;
  // sbin is a folder of its own: engines put their init program there, and /usr is read-only.
  for (const char* folder : {"sbin", "usr", "etc", "opt", "tmp", "proc", "sys", "dev", "run",
                             "var/tmp", "root", "home", "mnt"}) {
    fs::create_directories(root / folder, code);
    if (code)
      throw Error(ErrorKind::environment,
                  fmt::format("cannot make {}: {}", (root / folder).string(), code.message()));
  }
  const std::ofstream made(root / "sbin/docker-init", std::ios::app);
  for (const char* name : {"bin", "lib", "lib64"})
    if (!fs::is_symlink(root / name)) fs::create_symlink(fs::path("usr") / name, root / name, code);
  for (const std::string& bind : host_root_binds()) fs::create_directories(root / bind.substr(1));
}

std::vector<std::string> host_root_binds(const std::string& root) {
  std::vector<std::string> binds;
  for (const char* folder : {"/usr", "/etc", "/opt"})
    if (fs::is_directory(root + folder)) binds.emplace_back(folder);
  for (const char* folder : kDriverFolders) {
    const bool covered = std::any_of(binds.begin(), binds.end(),
                                     [&](const std::string& bind) { return below(folder, bind); });
    if (!covered && fs::is_directory(root + folder)) binds.emplace_back(folder);
  }
  return binds;
}

}  // namespace dynamiccl
