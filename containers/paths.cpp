#include "containers/paths.hpp"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

namespace dynamiccl {
namespace {

constexpr const char* kSystemCache = "/var/cache/dynamiccl";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string home_folder() {
  if (std::string home = variable("HOME"); !home.empty()) return home;
  const passwd* entry = getpwuid(geteuid());
  return entry != nullptr ? entry->pw_dir : "/tmp";
}

}  // namespace

bool is_root() { return geteuid() == 0; }

std::string cache_folder() {
  if (std::string folder = variable("DYNAMICCL_CACHE"); !folder.empty()) return folder;
  if (is_root()) return kSystemCache;
  const std::string base = variable("XDG_CACHE_HOME");
  return (base.empty() ? home_folder() + "/.cache" : base) + "/dynamiccl";
}

std::vector<std::string> cache_folders() {
  std::vector<std::string> folders{cache_folder()};
  if (folders.front() != kSystemCache && variable("DYNAMICCL_CACHE").empty())
    folders.emplace_back(kSystemCache);
  return folders;
}

std::string run_folder_root() {
  if (std::string folder = variable("DYNAMICCL_RUN_FOLDER"); !folder.empty()) return folder;
  return "/tmp/dynamiccl-" + std::to_string(geteuid());
}

}  // namespace dynamiccl
