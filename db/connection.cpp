#include "db/connection.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "core/error.hpp"

namespace dynamiccl {
namespace {

constexpr int kBusyTimeoutMs = 30000;

/// @returns the explanation, and whether it is the file's contents that are wrong
std::pair<std::string, ErrorKind> explain(int code, const std::string& path) {
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
          "free some space, then continue with `dynamiccl run --resume`",
          ErrorKind::environment};
    case SQLITE_IOERR:
      return {
          "the file system reports an error (full, over quota, or gone); earlier steps are "
          "kept: mend it, then continue with `dynamiccl run --resume`",
          ErrorKind::environment};
    case SQLITE_READONLY:
      return {"the file or its folder may not be written by this user; check `ls -l " + path +
                  "*`, or name another database with --db",
              ErrorKind::environment};
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return {
          "it cannot be opened by this user; check the path and the permissions of the file "
          "and its folder, or name another database with --db",
          ErrorKind::environment};
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {fmt::format("another process kept it locked for {} s; wait for it to end",
                          kBusyTimeoutMs / 1000),
              ErrorKind::environment};
    default:
      return {"", ErrorKind::environment};
  }
}

std::string regular_file_or_none(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    throw Error(ErrorKind::input,
                fmt::format("database {}: is a folder; name a file inside it with --db", path));
  }
  const fs::path folder = fs::absolute(path, ignored).parent_path();
  if (!fs::is_directory(folder, ignored)) {
    throw Error(ErrorKind::environment,
                fmt::format("database {}: its folder {} does not exist; create it, or name another "
                            "database with --db",
                            path, folder.string()));
  }
  return path;
}

int pragma(SQLite::Database& db, const std::string& name) {
  return db.execAndGet("PRAGMA " + name).getInt();
}

void check_owner_program(SQLite::Database& db, const std::string& path) {
  const int id = pragma(db, "application_id");
  const bool empty = db.execAndGet("SELECT count(*) FROM sqlite_master").getInt() == 0;
  if (id == kApplicationId || (id == 0 && empty)) return;
  throw Error(ErrorKind::data,
              fmt::format("database {}: an SQLite file of another program; it is left untouched, "
                          "name another database with --db",
                          path));
}

void switch_to_wal(SQLite::Database& db) {
  // The change of journal mode needs the file alone and does not wait by itself.
  for (int attempt = 0;; ++attempt) {
    try {
      db.exec("PRAGMA journal_mode=WAL");
      return;
    } catch (const SQLite::Exception& error) {
      if (error.getErrorCode() != SQLITE_BUSY || attempt >= 100) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
}

}  // namespace

void throw_explained(const SQLite::Exception& error, const std::string& path,
                     const std::string& doing) {
  const auto [next, kind] = explain(error.getErrorCode() & 0xff, path);
  throw Error(kind, fmt::format("database {}: {} failed: {}{}{}", path, doing, error.what(),
                                next.empty() ? "" : "; ", next));
}

SQLite::Database open_for_writing(const std::string& path) {
  regular_file_or_none(path);
  return explained(path, "opening", [&] {
    SQLite::Database db(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, kBusyTimeoutMs);
    check_owner_program(db, path);
    switch_to_wal(db);
    // FULL: a commit also survives the machine's power; there is one commit per launch.
    db.exec("PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; PRAGMA cache_size=-65536");
    if (pragma(db, "foreign_keys") != 1) {
      throw Error(
          ErrorKind::environment,
          fmt::format("database {}: this SQLite library was built without foreign keys", path));
    }
    return db;
  });
}

SQLite::Database open_for_reading(const std::string& path) {
  regular_file_or_none(path);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw Error(ErrorKind::environment,
                fmt::format("database {}: does not exist yet; `dynamiccl run FILE` creates it, or "
                            "name another one with --db",
                            path));
  }
  return explained(path, "opening", [&] {
    SQLite::Database db(path, SQLite::OPEN_READONLY, kBusyTimeoutMs);
    db.exec("PRAGMA query_only=ON; PRAGMA cache_size=-65536");
    if (pragma(db, "application_id") != kApplicationId) {
      throw Error(
          ErrorKind::data,
          fmt::format("database {}: not written by DynamICCL; name another one with --db", path));
    }
    return db;
  });
}

}  // namespace dynamiccl
