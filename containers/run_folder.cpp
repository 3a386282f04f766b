#include "containers/run_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "containers/owner.hpp"
#include "containers/paths.hpp"
#include "containers/shared_memory.hpp"
#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;
constexpr int kMostEnvironmentsPerRun = 100000;

std::string numbered_name(const std::string& run_id, int number) {
  return fmt::format("dyn-{}-{}", stable_id(run_id).substr(0, 8), number);
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(ErrorKind::environment,
              fmt::format("cannot make the run folder {}: {}; set DYNAMICCL_RUN_FOLDER to a folder "
                          "you may write to",
                          path, why));
}

void make_root(const std::string& root) {
  std::error_code above;
  fs::create_directories(fs::path(root).parent_path(), above);
  // Where a folder above it is missing, the reason is why that one could not be made.
  if (mkdir(root.c_str(), 0755) != 0 && errno != EEXIST)
    refuse(root, errno == ENOENT && above ? above.message() : std::strerror(errno));
  struct stat status {};
  if (lstat(root.c_str(), &status) != 0) refuse(root, std::strerror(errno));
  // /tmp is everybody's: a folder somebody else has put there must not be trusted.
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid())
    refuse(root, "it exists and is not yours");
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    refuse(root, "others may write to it (chmod go-w fixes it)");
}

/// Who owns a folder, as its file says; "" where there is none that can be trusted: a link, a pipe,
/// a device, somebody else's, or larger than a token.
std::string token_in(const fs::path& folder) {
  constexpr off_t kLongestToken = 256;
  const int file =
      open((folder / "owner").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return "";
  struct stat status {};
  std::string token;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
      status.st_size <= kLongestToken) {
    std::array<char, kLongestToken> text{};
    const ssize_t count = read(file, text.data(), text.size());
    if (count > 0) token.assign(text.data(), static_cast<std::size_t>(count));
  }
  close(file);
  return std::string(trim(token));
}

}  // namespace

std::string RunFolder::path_of(const std::string& name) { return run_folder_root() + "/" + name; }

std::string RunFolder::tmpfs_of(const std::string& name) { return "/dev/shm/" + name; }

std::string RunFolder::planned_name(const std::string& run_id) {
  for (int number = 0; number < kMostEnvironmentsPerRun; ++number) {
    std::string name = numbered_name(run_id, number);
    if (!fs::exists(path_of(name))) return name;
  }
  return numbered_name(run_id, 0);
}

RunFolder::RunFolder(const std::string& run_id) {
  make_root(run_folder_root());
  for (int number = 0; number < kMostEnvironmentsPerRun; ++number) {
    name_ = numbered_name(run_id, number);
    path_ = path_of(name_);
    if (mkdir(path_.c_str(), 0755) == 0) {
      std::ofstream owner(path_ + "/owner");
      owner << owner_token() << "\n";
      owner.close();
      if (!owner) {
        remove();
        refuse(path_, "its file \"owner\" cannot be written (is the disk full?)");
      }
      return;
    }
    if (errno != EEXIST) refuse(path_, std::strerror(errno));
  }
  refuse(path_, "too many environments of this run");
}

RunFolder::~RunFolder() { remove(); }

void RunFolder::write_script(const std::string& file, const std::string& text) const {
  const std::string path = path_ + "/" + file;
  std::ofstream stream(path);
  stream << text;
  stream.close();
  if (!stream || chmod(path.c_str(), 0755) != 0) refuse(path, std::strerror(errno));
}

void RunFolder::make_tmpfs() const {
  const std::string path = tmpfs_of(name_);
  // As /dev/shm itself: containers may run their ranks as another user.
  if (mkdir(path.c_str(), 0700) != 0 || chmod(path.c_str(), 01777) != 0)
    throw Error(ErrorKind::environment,
                fmt::format("cannot make {}, the memory that the containers share: {}", path,
                            std::strerror(errno)));
}

void RunFolder::remove() { remove_run_folder(name_); }

std::vector<std::string> remove_run_folder(const std::string& name) {
  const std::string path = RunFolder::path_of(name);
  struct stat status {};
  // The owner's file is written when the folder is made, and never again.
  const bool known = lstat((path + "/owner").c_str(), &status) == 0 && S_ISREG(status.st_mode);
  if (!known && lstat(path.c_str(), &status) != 0) return {};
  std::vector<std::string> removed =
      remove_left_segments("/dev/shm", static_cast<double>(status.st_mtim.tv_sec)).removed;
  std::error_code ignored;
  for (const std::string& folder : {RunFolder::tmpfs_of(name), path})
    if (fs::remove_all(folder, ignored) > 0) removed.push_back(folder);
  return removed;
}

std::vector<std::string> abandoned_run_folders() {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator at(run_folder_root(), code), end; !code && at != end;
       at.increment(code)) {
    const std::string name = at->path().filename().string();
    if (name.rfind("dyn-", 0) != 0) continue;
    struct stat status {};
    if (lstat(at->path().c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
        status.st_uid != geteuid())
      continue;
    const std::string token = token_in(at->path());
    // Without a token its maker is between two steps, or died there.
    constexpr time_t kYoungS = 60;
    const bool old = time(nullptr) - status.st_mtim.tv_sec > kYoungS;
    if (token.empty() ? old : !owner_alive(token)) names.push_back(name);
  }
  return names;
}

}  // namespace dynamiccl
