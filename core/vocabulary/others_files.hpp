#pragma once

// Files and folders that somebody else may have put where this program reads or writes.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {

/// Before a file that somebody named is read whole: a pipe would wait for its writer whatever
/// signal comes, and a device has no end.
/// @throws Error(input) when it is no regular file or larger; one that is not there passes
inline void require_whole_file(const std::string& path, std::uintmax_t most_mib = 64) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error || !std::filesystem::exists(status)) return;
  if (!std::filesystem::is_regular_file(status))
    throw Error(ErrorKind::input, path +
                                      ": is no regular file; name a file, or write into one "
                                      "first what a pipe or device gives");
  const auto bytes = std::filesystem::file_size(path, error);
  if (!error && bytes > most_mib << 20)
    throw Error(ErrorKind::input,
                fmt::format("{}: {} bytes, more than the {} MiB that such a file may have", path,
                            bytes, most_mib));
}

/// Whether DYNAMICCL_TRUSTED_USERS ("1000,1001") has the user's number, as where a group works in
/// a folder that one of it made.
inline bool is_trusted_user(uid_t user) {
  const char* told = std::getenv("DYNAMICCL_TRUSTED_USERS");
  if (told == nullptr) return false;
  const auto numbers = split(told, ',');
  return std::find(numbers.begin(), numbers.end(), std::to_string(user)) != numbers.end();
}

/// Who made a name in a folder of everybody, such as /tmp, can exchange or read what is kept under
/// it, or have a file of this user written over through a link.
/// @returns whether another user made `place`, which may be a link, in such a folder
inline bool is_strangers(const std::filesystem::path& place, struct stat& status) {
  struct stat above {};
  if (lstat(place.c_str(), &status) != 0 || stat(place.parent_path().c_str(), &above) != 0)
    return false;
  const bool everybodys = (above.st_mode & S_IWOTH) != 0;
  const bool trusted = status.st_uid == geteuid() || status.st_uid == 0 ||
                       status.st_uid == above.st_uid || is_trusted_user(status.st_uid);
  return everybodys && !trusted;
}

/// @throws Error(input) where it is another user's in such a folder
inline void require_no_stranger(const std::filesystem::path& place, const std::string& remedy) {
  struct stat status {};
  if (is_strangers(place, status))
    throw Error(ErrorKind::input,
                fmt::format("{}: another user (number {}) made it in a folder of everybody, and "
                            "could read or exchange what a run keeps there; {}, or trust that "
                            "user: DYNAMICCL_TRUSTED_USERS={}",
                            place.string(), status.st_uid, remedy, status.st_uid));
}

/// The same of `path`, of every folder above it and of every link that they go by.
/// @throws Error(input) when another user made one of them in a folder of everybody
inline void require_no_strangers(const std::filesystem::path& path, const std::string& remedy) {
  constexpr int kMostLinks = 40;  // as the kernel
  std::error_code ignored;
  auto place = std::filesystem::absolute(path, ignored);
  for (int links = 0; links <= kMostLinks; ++links) {
    std::filesystem::path target;
    std::filesystem::path above;
    for (auto part = place.begin(); part != place.end(); ++part) {
      if (target.empty()) {
        const auto reached = above / *part;
        if (*part != "..") require_no_stranger(reached, remedy);
        if (std::filesystem::is_symlink(reached, ignored))
          target = above / std::filesystem::read_symlink(reached, ignored);
        above = reached;
      } else {
        target /= *part;
      }
    }
    if (target.empty()) return;
    place = target;
  }
}

/// Makes a file anew that is renamed into place later: a link of that name, which somebody else
/// may have put there, is removed and not written through.
/// @returns false, with errno, when it cannot be made
inline bool begin_draft(const std::string& path) {
  ::unlink(path.c_str());
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  return file >= 0 && ::close(file) == 0;
}

}  // namespace dynamiccl
