#include "workers/run/own_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "dynamiccl-rank-";

/// Folders that nobody holds any more.
void remove_left(const std::string& base) {
  std::error_code problem;
  for (fs::directory_iterator at(base, problem), end; !problem && at != end;
       at.increment(problem)) {
    struct stat facts {};
    const std::string path = at->path().string();
    if (!at->path().filename().string().starts_with(kPrefix) || lstat(path.c_str(), &facts) != 0 ||
        !S_ISDIR(facts.st_mode) || facts.st_uid != geteuid())
      continue;
    const int lock = open((path + "/lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    // Without its lock it is just being made.
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0) {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
    if (lock >= 0) close(lock);
  }
}

}  // namespace

std::string OwnFolder::make() {
  const char* named = std::getenv("TMPDIR");
  const std::string base = named != nullptr && *named != '\0' ? named : "/tmp";
  remove_left(base);
  std::string path = fmt::format("{}/{}XXXXXX", base, kPrefix);
  if (mkdtemp(path.data()) == nullptr)
    throw Error(ErrorKind::environment,
                fmt::format("{}: no folder can be made there: {}; name another with TMPDIR", base,
                            std::strerror(errno)));
  path_ = path;
  // Locked before it has its name, so that nobody takes it for one that was left.
  const std::string draft = path_ + "/draft";
  lock_ = open(draft.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0 || flock(lock_, LOCK_EX) != 0 ||
      rename(draft.c_str(), (path_ + "/lock").c_str()) != 0)
    throw Error(ErrorKind::environment,
                fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)));
  return path_;
}

void OwnFolder::remove() {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  path_.clear();
  if (lock_ >= 0) close(lock_);
  lock_ = -1;
}

}  // namespace dynamiccl
