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

TEST_CASE("a mount whose locks stay on one machine is known by its options") {
  const std::string mounts =
      "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
      "40 22 0:50 / /home rw,relatime shared:7 master:2 - nfs4 srv:/home "
      "rw,vers=4.2,local_lock=none\n"
      "41 22 0:51 / /old rw - nfs srv:/old rw,vers=3,nolock,addr=10.0.0.1\n"
      "42 22 0:52 / /old/mixed rw - nfs srv:/mixed rw,vers=3,local_lock=posix\n"
      "43 22 0:53 / /lustre rw - lustre mgs@tcp:/fs rw,localflock\n"
      "44 22 0:54 / /smb rw - cifs //srv/x rw,nobrl\n"
      "45 22 0:55 / /far rw - fuse.sshfs srv:/x rw\n";
  CHECK(mount_of(mounts, "/home/a").type == "nfs4");
  CHECK(mount_of(mounts, "/homes").type == "ext4");
  CHECK(why_locks_stay_local(mount_of(mounts, "/home/a")).empty());
  CHECK(why_locks_stay_local(mount_of(mounts, "/tmp")).empty());
  CHECK_THAT(why_locks_stay_local(mount_of(mounts, "/old/runs")), ContainsSubstring("nolock"));
  for (const char* local : {"/old/mixed/a", "/lustre/a", "/smb", "/far/b"})
    CHECK_FALSE(why_locks_stay_local(mount_of(mounts, local)).empty());
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
  CHECK_THROWS_WITH(
      choose_journal(db, path, "nfs", "it is mounted with nolock"),
      ContainsSubstring("lies on nfs, and it is mounted with nolock") && ContainsSubstring("--db"));
  CHECK(journal(db) == "wal");
  choose_journal(db, path, "nfs", "");
  CHECK(journal(db) == "delete");
  CHECK(db.execAndGet("PRAGMA synchronous").getInt() == 2);
  CHECK(db.execAndGet("SELECT x FROM kept").getInt() == 7);
  CHECK_FALSE(fs::exists(path + "-wal"));
  // Back on a disk of its own, it has its log again.
  choose_journal(db, path, "", "");
  CHECK(journal(db) == "wal");
}
