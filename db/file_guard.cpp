#include "db/file_guard.hpp"

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/vocabulary/error.hpp"
#include "db/connection.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kReadIdentity = "SELECT value FROM meta WHERE key = 'identity'";

ino_t inode_of(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace

FileGuard::FileGuard(SQLite::Database& db, std::string path) : db_(db), path_(std::move(path)) {
  struct stat status {};
  regular_ = stat(path_.c_str(), &status) == 0 && S_ISREG(status.st_mode);
  if (!regular_) return;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  size_ = status.st_size;
  db_.exec(
      "INSERT INTO meta(key, value) VALUES ('identity', lower(hex(randomblob(16)))) "
      "ON CONFLICT (key) DO NOTHING");
  SQLite::Statement read(db_, kReadIdentity);
  if (read.executeStep()) identity_ = read.getColumn(0).getString();
  read.reset();
  find_page();
  if (!on_disk()) {
    // Other readers may keep it from the file; then it is looked for again later.
    SQLite::Statement checkpoint(db_, "PRAGMA wal_checkpoint(PASSIVE)");
    while (checkpoint.executeStep()) {
    }
  }
  identity_on_disk_ = on_disk();
  note_helpers();
}

void FileGuard::find_page() {
  page_bytes_ = db_.execAndGet("PRAGMA page_size").getInt();
  page_ = db_.execAndGet("SELECT rootpage FROM sqlite_master WHERE name = 'meta'").getInt64();
}

bool FileGuard::on_disk() const {
  const auto page = read_raw(db_, (page_ - 1) * page_bytes_, static_cast<std::size_t>(page_bytes_));
  return page.find(identity_) != std::string::npos;
}

void FileGuard::note_helpers() {
  log_ = inode_of(path_ + "-wal");
  index_ = inode_of(path_ + "-shm");
}

bool FileGuard::overwritten() {
  // Another process of ours may be moving its log into the file: a reading between two pages is
  // repeated.
  for (int attempt = 0; attempt < 20; ++attempt) {
    if (on_disk()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  // Another program's VACUUM may have moved the page.
  try {
    find_page();
  } catch (const SQLite::Exception&) {
    return true;
  }
  return !on_disk();
}

FileGuard::State FileGuard::look() {
  struct stat status {};
  int moved = 0;
  sqlite3_file_control(db_.getHandle(), "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  if (stat(path_.c_str(), &status) != 0) {
    lost_ = "it is no longer there: it was moved or deleted";
    return State::elsewhere;
  }
  if (moved != 0 || status.st_ino != inode_ || status.st_dev != device_) {
    lost_ = "another file has taken its name";
    return State::elsewhere;
  }
  size_ = std::max(size_, status.st_size);
  const bool other_contents = status.st_size == size_ && identity_on_disk_ && overwritten();
  // It may have been cut while its contents were read.
  if (other_contents && stat(path_.c_str(), &status) != 0) status.st_size = 0;
  if (status.st_size < size_) {
    lost_ = fmt::format("it was cut from {} to {} bytes", size_, status.st_size);
    return State::damaged;
  }
  if (other_contents) {
    lost_ = "other contents were written over it";
    return State::damaged;
  }
  if (!identity_on_disk_) identity_on_disk_ = on_disk();
  return State::unchanged;
}

void FileGuard::check() {
  if (!regular_) return;
  if (lost_.empty() && look() == State::unchanged) return;
  throw Error(ErrorKind::environment,
              fmt::format("database {}: {} while this process used it; nothing more is stored, and "
                          "the file that is there now is left alone. Put the database back and "
                          "continue with `dynamiccl run --resume`, or name another one with --db",
                          path_, lost_));
}

void FileGuard::take_away_helpers(bool keep_log) const noexcept {
  try {
    const std::string log = path_ + "-wal";
    if (log_ != 0 && inode_of(log) == log_) {
      // Left under its name it would be applied to whatever file has the database's name.
      if (keep_log) {
        rename(log.c_str(), fmt::format("{}.kept-{}", log, getpid()).c_str());
      } else {
        unlink(log.c_str());
      }
    }
    const std::string index = path_ + "-shm";
    if (index_ != 0 && inode_of(index) == index_) unlink(index.c_str());
  } catch (const std::exception&) {
  }
}

void FileGuard::before_close() noexcept {
  if (!regular_) return;
  try {
    const State state = look();
    if (state == State::unchanged && lost_.empty()) return;
    if (state == State::elsewhere) {
      // Into the file that was opened, wherever it is now: that is by descriptor.
      SQLite::Statement checkpoint(db_, "PRAGMA wal_checkpoint(TRUNCATE)");
      while (checkpoint.executeStep()) {
      }
    }
    sqlite3_db_config(db_.getHandle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    take_away_helpers(state != State::elsewhere);
  } catch (const std::exception&) {
    sqlite3_db_config(db_.getHandle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    take_away_helpers(true);
  }
}

}  // namespace dynamiccl
