#include "db/connection.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <thread>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/others_files.hpp"
#include "core/vocabulary/program_signals.hpp"
#include "db/network_files.hpp"

namespace dynamiccl {

std::string read_raw(SQLite::Database& db, std::int64_t offset, std::size_t most) {
  sqlite3_file* file = nullptr;
  sqlite3_file_control(db.getHandle(), "main", SQLITE_FCNTL_FILE_POINTER, &file);
  sqlite3_int64 size = 0;
  if (file == nullptr || file->pMethods == nullptr ||
      file->pMethods->xFileSize(file, &size) != SQLITE_OK || offset >= size)
    return "";
  std::string bytes(std::min<std::size_t>(most, static_cast<std::size_t>(size - offset)), '\0');
  const int code =
      file->pMethods->xRead(file, bytes.data(), static_cast<int>(bytes.size()), offset);
  return code == SQLITE_OK ? bytes : "";
}

namespace {

constexpr int kBusyTimeoutMs = 30000;

/// Largest value or row, bytes: the settings of a launch of 100,000 cells have half of it.
constexpr int kMostValueBytes = 64 << 20;

std::string quoted(std::string_view text, char quote) {
  std::string result(1, quote);
  for (const char c : text) {
    result += c;
    if (c == quote) result += c;
  }
  return result + quote;
}

/// @returns "it belongs to another user (number 0); " where it does, else ""
std::string whose(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || status.st_uid == geteuid()) return "";
  return fmt::format("it belongs to another user (number {}); ", status.st_uid);
}

/// For another process's lock. SQLite's own wait hears no signal.
int wait_for_lock(void* /*unused*/, int waited) {
  constexpr int kStepMs = 20;
  constexpr int kEndingMs = 500;
  const int most = noted_end_signals > 0 ? kEndingMs : kBusyTimeoutMs;
  if (waited * kStepMs >= most) return 0;
  std::this_thread::sleep_for(std::chrono::milliseconds(kStepMs));
  return 1;
}

/// Whether this user may read the file and not write it, or not write next to it.
bool may_only_read(const std::string& path) {
  const auto folder = std::filesystem::absolute(path).parent_path();
  return access(path.c_str(), R_OK) == 0 &&
         (access(path.c_str(), W_OK) != 0 || access(folder.c_str(), W_OK) != 0);
}

/// @returns the explanation, and whether it is the file's contents that are wrong
std::pair<std::string, ErrorKind> explain(int code, const std::string& path,
                                          const std::string& again) {
  if (code == SQLITE_CANTOPEN && may_only_read(path)) code = SQLITE_READONLY;
  switch (code) {
    case SQLITE_NOTADB:
      return {"the file is no database; name another one with --db, or move it away",
              ErrorKind::data};
    case SQLITE_CORRUPT:
      return {"the file is damaged; what can be read comes out with `sqlite3 FILE .recover`",
              ErrorKind::data};
    case SQLITE_FULL:
      return {
          "the disk is full; nothing of this step was stored and all earlier ones are kept: "
          "free some space, then " +
              again,
          ErrorKind::environment};
    case SQLITE_IOERR:
      return {
          "the file system reports an error (full, over quota, or gone); earlier steps are "
          "kept: fix it, then " +
              again,
          ErrorKind::environment};
    case SQLITE_READONLY:
      return {whose(path) +
                  "the file or its folder may not be written by this user; check `ls -l " + path +
                  "*`, or name another database with --db",
              ErrorKind::environment};
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return {
          whose(path) +
              "it cannot be opened by this user; check the path and the permissions of the file "
              "and its folder, or name another database with --db",
          ErrorKind::environment};
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {fmt::format("another process kept it locked for {} s; wait for it to end",
                          kBusyTimeoutMs / 1000),
              ErrorKind::environment};
    case SQLITE_INTERRUPT:
      return {"a signal asked for the end; nothing of this step was stored",
              ErrorKind::environment};
    case SQLITE_TOOBIG:
      return {fmt::format("a value or row of more than {} MiB, which no DynamICCL writes",
                          kMostValueBytes >> 20),
              ErrorKind::data};
    case SQLITE_ERROR:
      // Our statements are right for files that are as we write them.
      return {"the file is not as DynamICCL writes it; name another one with --db",
              ErrorKind::data};
    default:
      return {"", ErrorKind::environment};
  }
}

/// This user may not: wrong in a name that was just given.
bool is_refusal(int code) {
  return code == SQLITE_READONLY || code == SQLITE_CANTOPEN || code == SQLITE_PERM ||
         code == SQLITE_AUTH;
}

void regular_file_or_none(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    throw Error(ErrorKind::input,
                fmt::format("database {}: is a folder; name a file inside it with --db", path));
  }
  const auto kind = fs::status(path, ignored);
  // A pipe would be waited for without end, a device read as a database that is empty or locked.
  if (fs::exists(kind) && !fs::is_regular_file(kind))
    throw Error(ErrorKind::input,
                fmt::format("database {}: is no regular file; name another one with --db", path));
  const fs::path folder = fs::absolute(path, ignored).parent_path();
  if (!fs::is_directory(folder, ignored)) {
    throw Error(ErrorKind::input,
                fmt::format("database {}: its folder {} does not exist; create it, or name another "
                            "database with --db",
                            path, folder.string()));
  }
}

/// A new database is its user's alone, as SQLite makes what lies next to it: who may read the index
/// of the log could lock it, and no launch would be stored. Somebody else's access is for the user
/// to give (chmod).
void make_private(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file >= 0) close(file);
}

/// A file below a page's size is empty to SQLite, which then writes over it. Asked before the first
/// statement.
void require_magic(SQLite::Database& db, const std::string& path) {
  constexpr std::string_view kMagic = "SQLite format 3";
  const std::string head = read_raw(db, 0, kMagic.size());
  // SQLite takes a file of one byte for an empty one.
  std::error_code ignored;
  const bool one_byte = head.empty() && std::filesystem::is_regular_file(path, ignored) &&
                        std::filesystem::file_size(path, ignored) == 1;
  if (one_byte || (!head.empty() && head != kMagic))
    throw Error(ErrorKind::data,
                fmt::format("database {}: {}", path, explain(SQLITE_NOTADB, path, "").first));
}

int pragma(SQLite::Database& db, const std::string& name) {
  return db.execAndGet("PRAGMA " + name).getInt();
}

void check_owner_program(SQLite::Database& db, const std::string& path) {
  // In this order: another process may be creating it, tables and id in one step.
  const bool empty = db.execAndGet("SELECT count(*) FROM sqlite_master").getInt() == 0;
  const int id = pragma(db, "application_id");
  if (id == kApplicationId || (id == 0 && empty)) return;
  throw Error(ErrorKind::data,
              fmt::format("database {}: an SQLite file of another program; it is left untouched, "
                          "name another database with --db",
                          path));
}

void switch_journal(SQLite::Database& db, const char* statement) {
  // The change of journal mode needs the file alone and does not wait by itself.
  for (int attempt = 0;; ++attempt) {
    try {
      db.exec(statement);
      return;
    } catch (const SQLite::Exception& error) {
      if (error.getErrorCode() != SQLITE_BUSY || attempt >= 100 || noted_end_signals > 0) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
}

/// `path` as a URI that promises SQLite that nobody writes the file. Never where this process has
/// the file open: closing it would drop the locks.
std::string immutable_uri(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#') {
      uri += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      uri += c;
    }
  }
  return uri + "?immutable=1";
}

SQLite::Database open_read_only(const std::string& path) {
  try {
    SQLite::Database db(file_name_of(path), SQLite::OPEN_READONLY);
    distrust(db);
    require_magic(db, path);
    pragma(db, "schema_version");
    return db;
  } catch (const SQLite::Exception& error) {
    // Reading with WAL wants a file next to the database. In a folder that this user may not write
    // to, and with no writer's WAL there, the database can be read as it lies.
    const auto folder = std::filesystem::absolute(path).parent_path();
    const bool needs_shm = (error.getErrorCode() & 0xff) == SQLITE_CANTOPEN ||
                           (error.getErrorCode() & 0xff) == SQLITE_READONLY;
    if (!needs_shm || access(path.c_str(), R_OK) != 0 || access(folder.c_str(), W_OK) == 0 ||
        std::filesystem::exists(path + "-wal")) {
      throw;
    }
  }
  SQLite::Database db(immutable_uri(path), SQLite::OPEN_READONLY | SQLite::OPEN_URI);
  distrust(db);
  return db;
}

}  // namespace

std::string quoted_name(std::string_view name) { return quoted(name, '"'); }
std::string quoted_text(std::string_view text) { return quoted(text, '\''); }

int execute_one(SQLite::Database& db, const std::string& sql) {
  return SQLite::Statement(db, sql).exec();
}

void distrust(SQLite::Database& db) {
  sqlite3* handle = db.getHandle();
  const auto set = [&](int what, int value) {
    if (sqlite3_db_config(handle, what, value, nullptr) != SQLITE_OK)
      throw Error(ErrorKind::environment,
                  "this SQLite library cannot be kept from running what a file says; it is older "
                  "than 3.31");
  };
  set(SQLITE_DBCONFIG_DEFENSIVE, 1);
  set(SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0);
  set(SQLITE_DBCONFIG_ENABLE_TRIGGER, 0);
  set(SQLITE_DBCONFIG_ENABLE_VIEW, 0);
  sqlite3_busy_handler(handle, wait_for_lock, nullptr);
  sqlite3_limit(handle, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, kMostValueBytes);
}

EndedBySignals::EndedBySignals(SQLite::Database& db) : db_(db), noted_before_(noted_end_signals) {
  constexpr int kSteps = 1000;
  sqlite3_progress_handler(db_.getHandle(), kSteps, has_come, this);
}
EndedBySignals::~EndedBySignals() {
  sqlite3_progress_handler(db_.getHandle(), 0, nullptr, nullptr);
}
int EndedBySignals::has_come(void* self) {
  return noted_end_signals > static_cast<const EndedBySignals*>(self)->noted_before_ ? 1 : 0;
}

MayAttach::MayAttach(SQLite::Database& db) : db_(db) {
  sqlite3_limit(db_.getHandle(), SQLITE_LIMIT_ATTACHED, 1);
}
MayAttach::~MayAttach() { sqlite3_limit(db_.getHandle(), SQLITE_LIMIT_ATTACHED, 0); }

std::string file_name_of(const std::string& path) {
  return path.starts_with(':') || path.starts_with("file:") ? "./" + path : path;
}

void throw_explained(const SQLite::Exception& error, const std::string& path,
                     const std::string& doing, ErrorKind refused) {
  const int code = error.getErrorCode() & 0xff;
  const auto [next, kind] =
      explain(code, path,
              refused == ErrorKind::input ? "give the command again"
                                          : "continue with `dynamiccl run --resume`");
  throw Error(is_refusal(code) ? refused : kind,
              fmt::format("database {}: {} failed: {}{}{}", path, doing, error.what(),
                          next.empty() ? "" : "; ", next));
}

void choose_journal(SQLite::Database& db, const std::string& path, const std::string& network,
                    const std::string& no_locks) {
  if (network.empty()) {
    switch_journal(db, "PRAGMA journal_mode=WAL");
    // NORMAL: a killed process loses nothing; the machine losing power may cost the newest commits,
    // never the database. Waiting for the disk twice per launch would cost more than the rows.
    db.exec("PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=4000");
    return;
  }
  if (!no_locks.empty())
    throw Error(
        ErrorKind::environment,
        fmt::format("database {}: its folder lies on {}, and {}: two processes could damage it; "
                    "name a database on this machine's own disk with --db, and give --out the "
                    "folder that all nodes share",
                    path, network, no_locks));
  switch_journal(db, "PRAGMA journal_mode=DELETE");
  db.exec("PRAGMA synchronous=FULL");
}

SQLite::Database open_for_writing(const std::string& path) {
  regular_file_or_none(path);
  // Before anything is made: an empty file would be left where it is refused.
  require_no_strangers(path, "choose another place with --db");
  make_private(path);
  return opened(path, [&] {
    SQLite::Database db(file_name_of(path), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE |
                                                SQLite::OPEN_NOMUTEX | SQLite::OPEN_URI);
    distrust(db);
    require_magic(db, path);
    check_owner_program(db, path);
    const std::string folder = std::filesystem::absolute(path).parent_path().string();
    const std::string network = network_file_system(folder);
    choose_journal(db, path, network, network.empty() ? "" : why_locks_do_not_hold(folder));
    // A small cache: rows are appended, and a large one would let the writer grow with its
    // database.
    db.exec("PRAGMA foreign_keys=ON; PRAGMA cache_size=-2048; PRAGMA cell_size_check=ON");
    if (pragma(db, "foreign_keys") != 1) {
      throw Error(
          ErrorKind::environment,
          fmt::format("database {}: this SQLite library was built without foreign keys", path));
    }
    return db;
  });
}

SQLite::Database open_for_reading(const std::string& path) {
  std::error_code ignored;
  const auto folder = std::filesystem::absolute(path, ignored).parent_path();
  std::error_code unseen;
  const auto there = std::filesystem::status(folder, unseen);
  // An empty folder would be of no use to who wants to read.
  if (there.type() == std::filesystem::file_type::not_found)
    throw Error(ErrorKind::input,
                fmt::format("database {}: does not exist yet, nor does its folder; `dynamiccl run "
                            "FILE` creates both, or name another one with --db",
                            path));
  regular_file_or_none(path);
  if (!std::filesystem::exists(path, ignored)) {
    throw Error(ErrorKind::input,
                fmt::format("database {}: does not exist yet; `dynamiccl run FILE` creates it, or "
                            "name another one with --db",
                            path));
  }
  if (std::filesystem::is_regular_file(path, ignored) &&
      std::filesystem::file_size(path, ignored) == 0) {
    throw Error(ErrorKind::input,
                fmt::format("database {}: is empty (0 bytes); `dynamiccl run FILE --db {}` fills "
                            "it, or name another one with --db",
                            path, path));
  }
  return opened(path, [&] {
    SQLite::Database db = open_read_only(path);
    db.exec("PRAGMA query_only=ON; PRAGMA cache_size=-65536; PRAGMA cell_size_check=ON");
    if (pragma(db, "application_id") != kApplicationId) {
      throw Error(
          ErrorKind::data,
          fmt::format("database {}: not written by DynamICCL; name another one with --db", path));
    }
    return db;
  });
}

}  // namespace dynamiccl
