#include "orchestrator/run/held_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/others_files.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {

namespace fs = std::filesystem;

namespace {

constexpr int kAsFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

/// Everybody may exchange what lies there: only the sticky bit leaves names to who made them.
bool lets_everybody_rename(mode_t mode) { return (mode & S_IWOTH) != 0 && (mode & S_ISVTX) == 0; }

}  // namespace

void make_folder(const std::string& path, const std::string& remedy) {
  std::error_code error;
  // Without a mask they would be everybody's.
  const mode_t mask = umask(S_IWOTH);
  umask(mask | S_IWOTH);
  fs::create_directories(path, error);
  umask(mask);
  // A link to a folder is as good as one, although create_directories complains of it.
  std::error_code ignored;
  if (error && !fs::is_directory(path, ignored))
    throw Error(ErrorKind::input,
                fmt::format("{}: cannot be made: {}; {}", path, error.message(), remedy));
}

void make_own_folder(const std::string& path, const std::string& remedy) {
  require_no_strangers(path, remedy);
  make_folder(path, remedy);
  // Another user may have been the one who made it.
  require_no_strangers(path, remedy);
}

HeldFolder::HeldFolder(FileDescriptor folder, std::string path, std::string remedy)
    : folder_(std::move(folder)), path_(std::move(path)), remedy_(std::move(remedy)) {}

HeldFolder::HeldFolder(const std::string& path, std::string remedy) : remedy_(std::move(remedy)) {
  make_own_folder(path, remedy_);
  std::error_code error;
  path_ = fs::canonical(path, error).string();
  if (!error) folder_ = FileDescriptor(::open(path_.c_str(), kAsFolder));
  if (!folder_.valid())
    throw Error(ErrorKind::input,
                fmt::format("{}: cannot be opened: {}; {}", path,
                            error ? error.message() : std::strerror(errno), remedy_));
  if (const std::string why = why_not_own(); !why.empty())
    throw Error(ErrorKind::input, fmt::format("{}: {}; {}", path_, why, remedy_));
}

std::string HeldFolder::why_not_own() const {
  struct stat status {};
  if (fstat(folder_.get(), &status) != 0) return std::strerror(errno);
  if (status.st_uid != geteuid() && status.st_uid != 0 && !is_trusted_user(status.st_uid))
    return fmt::format(
        "it belongs to another user (number {0}; to trust that one: DYNAMICCL_TRUSTED_USERS={0})",
        status.st_uid);
  if (lets_everybody_rename(status.st_mode))
    return "every user of this machine may exchange what lies there";
  return "";
}

HeldFolder HeldFolder::below(const std::string& name, mode_t mode) const {
  const std::string path = path_ + "/" + name;
  constexpr mode_t kNew = S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH;
  if (mkdirat(folder_.get(), name.c_str(), mode == 0 ? kNew : S_IRWXU) != 0 && errno != EEXIST)
    throw Error(ErrorKind::environment,
                fmt::format("{}: cannot be made: {}; {}", path, std::strerror(errno), remedy_));
  HeldFolder made(FileDescriptor(openat(folder_.get(), name.c_str(), kAsFolder)), path, remedy_);
  if (!made.folder_.valid())
    throw Error(
        ErrorKind::environment,
        fmt::format("{}: is no folder that can be opened, and a link is not followed: {}; {}", path,
                    std::strerror(errno), remedy_));
  if (mode != 0) static_cast<void>(fchmod(made.folder_.get(), mode));
  if (const std::string why = made.why_not_own(); !why.empty())
    throw Error(ErrorKind::environment, fmt::format("{}: {}; {}", path, why, remedy_));
  return made;
}

void HeldFolder::require_same() const {
  std::string why = why_not_own();
  struct stat held {};
  struct stat named {};
  std::error_code error;
  if (why.empty() && fs::canonical(path_, error).string() != path_)
    why = error ? error.message() : "a link stands in its place";
  else if (why.empty() && (fstat(folder_.get(), &held) != 0 || stat(path_.c_str(), &named) != 0 ||
                           held.st_dev != named.st_dev || held.st_ino != named.st_ino))
    why = "another folder stands in its place";
  if (!why.empty())
    throw Error(ErrorKind::environment,
                fmt::format("{}: it has been exchanged or opened to others since this began, and "
                            "nothing more is written there: {}; {} that nobody else may change",
                            path_, why, remedy_));
}

bool HeldFolder::is_open_to_all() const {
  constexpr mode_t kOpen = S_IWOTH | S_ISVTX;
  struct stat status {};
  return fstat(folder_.get(), &status) == 0 && (status.st_mode & kOpen) == kOpen;
}

std::string HeldFolder::held() const { return fmt::format("/proc/self/fd/{}", folder_.get()); }

void HeldFolder::write(const std::string& name, const std::string& text) const {
  const std::string path = held() + "/" + name;
  const std::string draft = path + ".new";
  std::ofstream file;
  if (begin_draft(draft)) file.open(draft, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file && std::rename(draft.c_str(), path.c_str()) == 0) return;
  const std::string why = std::strerror(errno);
  ::unlink(draft.c_str());
  throw Error(ErrorKind::environment,
              fmt::format("{}/{}: cannot be written: {}; {}", path_, name, why, remedy_));
}

void require_no_exchange(const HeldFolder& folder, const std::string& remedy) {
  for (fs::path above = fs::path(folder.path()).parent_path();; above = above.parent_path()) {
    struct stat status {};
    if (stat(above.c_str(), &status) == 0 && lets_everybody_rename(status.st_mode))
      throw Error(ErrorKind::input,
                  fmt::format("{}: every user of this machine may exchange what lies there, and a "
                              "job loads what stands in {}; `chmod +t {}`, or {}",
                              above.string(), folder.path(), shell_quote(above.string()), remedy));
    if (above == above.root_path()) return;
  }
}

}  // namespace dynamiccl
