#include "containers/paths.hpp"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace dynamiccl {
namespace {

constexpr const char* kSystemCache = "/var/cache/dynamiccl";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// A folder of this user's into which nobody else may write.
bool is_ours(const std::string& folder) {
  struct stat status {};
  return !folder.empty() && lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
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
  // A session's own folder, which nobody else can have made first.
  if (const std::string session = variable("XDG_RUNTIME_DIR"); is_ours(session) && !is_root())
    return session + "/dynamiccl";
  const std::string shared = "/tmp/dynamiccl-" + std::to_string(geteuid());
  struct stat status {};
  if (lstat(shared.c_str(), &status) != 0 || is_ours(shared)) return shared;
  // Somebody else has taken the name, as everybody can in /tmp.
  return cache_folder() + "/run";
}

}  // namespace dynamiccl
