#include "db/network_files.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>

#include "core/vocabulary/error.hpp"
#include "db/connection.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

struct Folder {
  std::string path = fs::temp_directory_path() / "network-files-XXXXXX";
  Folder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  ~Folder() { fs::remove_all(path); }
};

std::string journal(SQLite::Database& db) {
  return db.execAndGet("PRAGMA journal_mode").getString();
}

}  // namespace

TEST_CASE("file systems of several machines are told from this machine's") {
  CHECK(network_name(0x6969, "nfs4") == "nfs");
  CHECK(network_name(0x0bd00bd0, "lustre") == "lustre");
  CHECK(network_name(static_cast<long>(0xff534d42), "cifs") == "cifs");
  CHECK(network_name(static_cast<int>(0xff534d42), "cifs") == "cifs");
  CHECK(network_name(0x65735546, "fuse.sshfs") == "fuse.sshfs");
  for (const char* local : {"fuse.fuse-overlayfs", "fuseblk", "virtiofs"})
    CHECK(network_name(0x65735546, local).empty());
  for (const long local : {0xef53L, 0x01021994L, 0x9123683eL, 0x794c7630L})
    CHECK(network_name(local, "").empty());
}

TEST_CASE("this machine's folders are its own, and locks hold there") {
  const Folder folder;
  CHECK(network_file_system(folder.path).empty());
  CHECK(network_file_system("/nowhere").empty());
  CHECK(locks_hold(folder.path));
  CHECK(fs::is_empty(folder.path));
  CHECK_FALSE(locks_hold("/proc"));
}

TEST_CASE("a database on a network file system is written through the rollback journal, or not") {
  const Folder folder;
  const std::string path = folder.path + "/a.sqlite";
  {
    SQLite::Database db = open_for_writing(path);
    CHECK(journal(db) == "wal");
    db.exec("CREATE TABLE kept(x); INSERT INTO kept VALUES (7)");
  }
  SQLite::Database db(path, SQLite::OPEN_READWRITE);
  CHECK_THROWS_WITH(choose_journal(db, path, "nfs", false),
                    ContainsSubstring("lies on nfs, where a lock keeps nobody away") &&
                        ContainsSubstring("--db"));
  CHECK(journal(db) == "wal");
  choose_journal(db, path, "nfs", true);
  CHECK(journal(db) == "delete");
  CHECK(db.execAndGet("PRAGMA synchronous").getInt() == 2);
  CHECK(db.execAndGet("SELECT x FROM kept").getInt() == 7);
  CHECK_FALSE(fs::exists(path + "-wal"));
  // Back on a disk of its own, it has its log again.
  choose_journal(db, path, "", true);
  CHECK(journal(db) == "wal");
}
