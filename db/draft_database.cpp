#include "db/draft_database.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "core/vocabulary/error.hpp"
#include "db/connection.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVfsName = "dynamiccl-draft";
constexpr const char* kFolder = "/proc/self/fd/";

sqlite3_vfs* usual_vfs() { return sqlite3_vfs_find("unix"); }

/// SQLite opens no file behind a link, of which /proc has one for each descriptor.
int open_file(const char* name, int flags, int mode) {
  const bool by_descriptor = std::string_view(name).starts_with(kFolder);
  return ::open(name, by_descriptor ? flags & ~O_NOFOLLOW : flags, mode);
}

/// Nor may it follow the link itself, to a name where nothing lies.
int full_name_of(sqlite3_vfs* /*vfs*/, const char* name, int most, char* full) {
  if (!std::string_view(name).starts_with(kFolder))
    return usual_vfs()->xFullPathname(usual_vfs(), name, most, full);
  sqlite3_snprintf(most, full, "%s", name);
  return SQLITE_OK;
}

void register_vfs() {
  static const int done = [] {
    static sqlite3_vfs vfs = *usual_vfs();
    vfs.zName = kVfsName;
    vfs.pNext = nullptr;
    vfs.xFullPathname = full_name_of;
    const int code = usual_vfs()->xSetSystemCall(usual_vfs(), "open",
                                                 reinterpret_cast<sqlite3_syscall_ptr>(open_file));
    return code != SQLITE_OK ? code : sqlite3_vfs_register(&vfs, 0);
  }();
  if (done != SQLITE_OK) throw SQLite::Exception("a draft cannot be opened", done);
}

std::string by_number(int file) { return kFolder + std::to_string(file); }

fs::path folder_of(const std::string& path) {
  const auto folder = fs::path(path).parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

/// A name that nobody gives a file of theirs: ".TO.NUMBER.dynamiccl-draft"
constexpr std::string_view kEnd = ".dynamiccl-draft";

std::string begin_of_draft(const std::string& to) {
  constexpr std::size_t kMost = 200;  // a name has 255 bytes at most
  return "." + fs::path(to).filename().string().substr(0, kMost) + ".";
}

bool is_draft_of(const std::string& to, const std::string& name) {
  const std::string begin = begin_of_draft(to);
  return name.size() > begin.size() + kEnd.size() && name.starts_with(begin) &&
         name.ends_with(kEnd) &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(begin.size()),
                     name.end() - static_cast<std::ptrdiff_t>(kEnd.size()),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// Of this user's processes that are gone: the kernel has taken their locks back, SQLite's too.
void remove_where_dead(const fs::path& path) {
  struct stat status {};
  struct flock whole {};
  whole.l_type = F_WRLCK;
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid() || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_uid != geteuid() || status.st_nlink != 1 ||
      flock(file.get(), LOCK_EX | LOCK_NB) != 0 || fcntl(file.get(), F_GETLK, &whole) != 0 ||
      whole.l_type != F_UNLCK)
    return;
  ::unlink(path.c_str());
}

void remove_dead_drafts(const std::string& to) {
  std::error_code ended;
  for (fs::directory_iterator at(folder_of(to), ended), end; !ended && at != end;
       at.increment(ended))
    if (is_draft_of(to, at->path().filename().string())) remove_where_dead(at->path());
}

}  // namespace

void refuse_what_is_there(const std::string& to) {
  throw Error(ErrorKind::input,
              fmt::format("{}: is there already; name a new file, or remove it", to));
}

std::string merging_name(const std::string& path) { return path + ".merging"; }

void remove_left_merging(const std::string& path) {
  remove_dead_drafts(merging_name(path));
  const std::string old = merging_name(path);
  std::error_code ignored;
  if (fs::exists(old, ignored)) remove_where_dead(old);
  if (fs::exists(old, ignored)) return;
  for (const char* beside : {"-wal", "-shm", "-journal"}) remove_where_dead(old + beside);
}

void DraftDatabase::refuse() const {
  throw Error(ErrorKind::input,
              fmt::format("{}: cannot be written: {}; {}", to_, std::strerror(errno), elsewhere_));
}

DraftDatabase::DraftDatabase(std::string to, std::string elsewhere)
    : to_(std::move(to)), elsewhere_(std::move(elsewhere)) {
  remove_dead_drafts(to_);
  // It gets its name by way of /proc.
  if (access(kFolder, X_OK) == 0)
    file_ = FileDescriptor(::open(folder_of(to_).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file_.valid()) begin_with_name();
  if (fchmod(file_.get(), 0600) == 0) return;
  const int why = errno;
  if (!name_.empty()) ::unlink(name_.c_str());
  errno = why;
  refuse();
}

void DraftDatabase::begin_with_name() {
  // By a name of this process: another one may be writing a draft for that place.
  const auto name =
      (folder_of(to_) / fmt::format("{}{}{}", begin_of_draft(to_), getpid(), kEnd)).string();
  for (int attempt = 0; attempt < 3; ++attempt) {
    file_ = FileDescriptor(
        ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    struct stat status {};
    if (!file_.valid()) refuse();
    if (flock(file_.get(), LOCK_EX) != 0) {
      const int why = errno;
      ::unlink(name.c_str());
      errno = why;
      refuse();
    }
    // Until it was locked it looked like a dead one's.
    if (fstat(file_.get(), &status) == 0 && status.st_nlink > 0) {
      name_ = name;
      return;
    }
  }
  errno = EBUSY;
  refuse();
}

DraftDatabase::~DraftDatabase() {
  if (!name_.empty()) ::unlink(name_.c_str());
}

SQLite::Database DraftDatabase::open() const {
  register_vfs();
  SQLite::Database db(by_number(file_.get()), SQLite::OPEN_READWRITE, 0, kVfsName);
  // Before it is distrusted: such a connection may not do without a journal.
  db.exec("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF");
  distrust(db);
  return db;
}

std::string DraftDatabase::uri() const {
  register_vfs();
  return "file:" + by_number(file_.get()) + "?vfs=" + kVfsName;
}

void DraftDatabase::forget_log() const {
  // The file format's versions for writing and reading.
  constexpr off_t kVersions = 18;
  const char versions[2] = {1, 1};
  if (pwrite(file_.get(), versions, sizeof(versions), kVersions) != sizeof(versions)) refuse();
}

void DraftDatabase::put_in_place() {
  if (fsync(file_.get()) != 0) refuse();
  if (name_.empty()) {
    if (linkat(AT_FDCWD, by_number(file_.get()).c_str(), AT_FDCWD, to_.c_str(),
               AT_SYMLINK_FOLLOW) == 0)
      return;
  } else {
    // In one step where there is one: who is killed between two leaves both names.
    if (renameat2(AT_FDCWD, name_.c_str(), AT_FDCWD, to_.c_str(), RENAME_NOREPLACE) == 0) {
      name_.clear();
      return;
    }
    if (errno == EINVAL && ::link(name_.c_str(), to_.c_str()) == 0) return;
  }
  if (errno == EEXIST) refuse_what_is_there(to_);
  refuse();
}

}  // namespace dynamiccl
