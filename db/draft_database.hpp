#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <string>

#include "core/vocabulary/file_descriptor.hpp"

namespace dynamiccl {

/// A database that is written whole and then put in its place, which replaces no file. Until then
/// it has no name where the file system allows that: whoever is killed leaves nothing. Elsewhere it
/// lies next to its place, locked, and goes with the next draft for that place.
class DraftDatabase {
 public:
  /// @param to its place, absolute or not; readable for this user alone
  /// @param elsewhere "choose another place with --out"
  /// @throws Error(input) when nothing can be written there
  DraftDatabase(std::string to, std::string elsewhere);
  ~DraftDatabase();
  DraftDatabase(const DraftDatabase&) = delete;
  DraftDatabase& operator=(const DraftDatabase&) = delete;

  /// One connection at a time. There is no journal: what fails half way is of no use.
  [[nodiscard]] SQLite::Database open() const;
  /// What another connection attaches it by, while none of open() lives.
  [[nodiscard]] std::string uri() const;
  /// Between two connections, after a copy of a database that has a log (WAL): this one has none.
  void forget_log() const;
  /// @throws Error(input) when something is there by now, or that name cannot be given to it
  void put_in_place();

 private:
  void begin_with_name();
  [[noreturn]] void refuse() const;
  std::string to_;
  std::string elsewhere_;
  std::string name_;  ///< "" = it has none
  FileDescriptor file_;
};

/// The place of a draft that is made while another database is merged into `path`.
std::string merging_name(const std::string& path);

/// Removes what imports into `path` left that were killed: their drafts, and the files of that name
/// that older programs wrote next to it. Not those of processes that live.
void remove_left_merging(const std::string& path);

/// @throws Error(input) that says so
[[noreturn]] void refuse_what_is_there(const std::string& to);

}  // namespace dynamiccl
