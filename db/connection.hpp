#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {

/// Marks our files ("DYNC") apart from other programs' SQLite files.
inline constexpr int kApplicationId = 0x44594E43;

/// What SQLite opens as the file of that name: ":memory:" and "file:x?mode=memory" are no file to
/// it, and what was measured into them would be lost.
std::string file_name_of(const std::string& path);

/// `name` as SQL names it, whatever letters it has.
std::string quoted_name(std::string_view name);
/// `text` as SQL writes a text.
std::string quoted_text(std::string_view text);

/// Runs one statement: what follows it in `sql` is not run.
/// @returns how many rows it changed
int execute_one(SQLite::Database& db, const std::string& sql);

/// Takes from a connection what a file's own schema could do with it: attaching other files,
/// triggers, views (but those that the connection makes for itself, TEMP), settings that write
/// pages past SQLite, functions with side effects, values without an end. Before the first
/// statement: any file may be somebody else's.
void distrust(SQLite::Database& db);

/// While it lives, statements of the connection end by SQLITE_INTERRUPT when a signal asks the
/// program to end (noted_end_signals). For what nothing is lost by: reading, and opening.
class EndedBySignals {
 public:
  explicit EndedBySignals(SQLite::Database& db);
  ~EndedBySignals();
  EndedBySignals(const EndedBySignals&) = delete;
  EndedBySignals& operator=(const EndedBySignals&) = delete;

 private:
  static int has_come(void* self);
  SQLite::Database& db_;
  int noted_before_;
};

/// While it lives, a connection may attach one file: VACUUM does, and merging.
class MayAttach {
 public:
  explicit MayAttach(SQLite::Database& db);
  ~MayAttach();
  MayAttach(const MayAttach&) = delete;
  MayAttach& operator=(const MayAttach&) = delete;

 private:
  SQLite::Database& db_;
};

/// The one place that opens SQLite. WAL, foreign keys on, waits up to 30 s for another writer,
/// half a second once a signal has asked the program to end.
/// @throws Error(data) for a file that is no database of ours, Error(input) when this user may not
/// open it, Error(environment) when the machine fails
SQLite::Database open_for_writing(const std::string& path);

/// How a database is written safely where it lies. On this machine's disks: a log next to it (WAL).
/// On a network file system, where other machines do not see the log's index: the rollback journal,
/// every step down to the disk; and only where locks keep others away.
/// @param network network_file_system() of its folder
/// @param no_locks why_locks_do_not_hold() there
/// @throws Error(environment) where nothing is safe
void choose_journal(SQLite::Database& db, const std::string& path, const std::string& network,
                    const std::string& no_locks);

/// A connection that cannot write, whatever SQL it is given.
/// @throws as open_for_writing, also when the file does not exist
SQLite::Database open_for_reading(const std::string& path);

/// Bytes of the database's file, at most so many, as it lies on the disk without its log; "" where
/// there are none. A process must never open the file a second time next to SQLite: closing that
/// descriptor drops its locks, and another process would take the log away from it.
std::string read_raw(SQLite::Database& db, std::int64_t offset, std::size_t most);

/// Turns an SQLite error into one that says what failed, where, why and what to do next.
/// @param doing "storing the launch"
/// @param refused kind of what this user may not open or write: input where the user has just named
/// the file, the environment's failure where it could be used before
[[noreturn]] void throw_explained(const SQLite::Exception& error, const std::string& path,
                                  const std::string& doing,
                                  ErrorKind refused = ErrorKind::environment);

/// Runs `work`, its SQLite errors explained.
template <class Work>
auto explained(const std::string& path, const std::string& doing, Work&& work,
               ErrorKind refused = ErrorKind::environment) {
  try {
    return work();
  } catch (const SQLite::Exception& error) {
    throw_explained(error, path, doing, refused);
  }
}

/// Of the first steps with a database that the user named.
template <class Work>
auto opened(const std::string& path, Work&& work) {
  return explained(path, "opening", std::forward<Work>(work), ErrorKind::input);
}

}  // namespace dynamiccl
