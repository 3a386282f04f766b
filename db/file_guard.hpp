#pragma once

#include <SQLiteCpp/SQLiteCpp.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

namespace dynamiccl {

/// Notices that a database's file is no longer the one that was opened: moved, deleted, replaced by
/// another of its name, truncated or written over. SQLite alone would go on writing into a file
/// that nobody finds again, and its write-ahead log, which is found by name, would be applied to
/// the file that took the name. Used by the one writer.
class FileGuard {
 public:
  /// @param db with the tables of today; gets an identity where it has none
  FileGuard(SQLite::Database& db, std::string path);

  /// To be called before each transaction.
  /// @throws Error(environment) that says what happened; nothing is stored from then on
  void check();

  /// To be called before the connection is closed: where the file is another one, nothing of it is
  /// checkpointed or deleted, and what this connection put next to it by name is taken away.
  void before_close() noexcept;

 private:
  enum class State { unchanged, elsewhere, damaged };
  [[nodiscard]] State look();
  [[nodiscard]] bool overwritten();
  /// Where the file keeps the identity.
  void find_page();
  /// Whether the file itself has it, without its log.
  [[nodiscard]] bool on_disk() const;
  void note_helpers();
  void take_away_helpers(bool keep_log) const noexcept;

  SQLite::Database& db_;
  std::string path_;
  std::string identity_;
  std::int64_t page_ = 0;  ///< of the table `meta`
  std::int64_t page_bytes_ = 0;
  bool identity_on_disk_ = false;  ///< it was seen in the file itself, not only in the log
  bool regular_ = false;           ///< a file by a name, as databases in memory are not
  dev_t device_ = 0;
  ino_t inode_ = 0;
  off_t size_ = 0;  ///< the largest that was seen: a database of ours never shrinks
  ino_t log_ = 0;
  ino_t index_ = 0;
  std::string lost_;  ///< what happened; "" = nothing
};

}  // namespace dynamiccl
