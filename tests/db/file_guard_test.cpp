// The file of a database changes under the one who writes it.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/vocabulary/error.hpp"
#include "db/reader.hpp"
#include "db/store.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::size_t runs_in(const std::string& path) {
  return Reader(path).query("SELECT uuid FROM run").rows.size();
}

void begin(Store& store, const std::string& id) {
  const auto plan = make_plan(id, {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
}

/// A database with so many runs, closed.
void make_database(const std::string& path, int runs) {
  Store store(path);
  for (int i = 0; i < runs; ++i) begin(store, "other-" + std::to_string(i));
}

}  // namespace

TEST_CASE("another file that took the database's name keeps what it holds", "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("x.sqlite");
  const auto other = folder.file("other.sqlite");
  make_database(other, 11);
  {
    Store store(path);
    begin(store, "run-1");
    fs::rename(path, folder.file("moved.sqlite"));
    fs::rename(other, path);
    CHECK_THROWS_WITH(begin(store, "run-2"), ContainsSubstring("another file has taken its name"));
    CHECK_THROWS_WITH(begin(store, "run-3"), ContainsSubstring("nothing more is stored"));
  }
  // No log of ours lies there for whoever opens that file next; readers make one of their own.
  CHECK_FALSE(fs::exists(path + "-wal"));
  CHECK(runs_in(path) == 11);
  // What was stored before went with the file that was opened.
  CHECK(runs_in(folder.file("moved.sqlite")) == 1);
}

TEST_CASE("a database that was moved or deleted is noticed", "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("x.sqlite");
  {
    Store store(path);
    begin(store, "run-1");
    fs::rename(path, folder.file("moved.sqlite"));
    CHECK_THROWS_WITH(begin(store, "run-2"), ContainsSubstring("moved or deleted"));
  }
  CHECK(runs_in(folder.file("moved.sqlite")) == 1);
  CHECK_FALSE(fs::exists(path));
  {
    Store store(path);
    begin(store, "run-1");
    fs::remove(path);
    CHECK_THROWS_WITH(begin(store, "run-2"), ContainsSubstring("moved or deleted"));
  }
  CHECK_FALSE(fs::exists(path + "-wal"));
}

TEST_CASE("a database that was cut or written over is noticed and left alone", "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("x.sqlite");
  const auto other = folder.file("other.sqlite");
  make_database(other, 3);
  for (const bool cut : {true, false}) {
    fs::remove(path);
    std::string after;
    {
      Store store(path);
      begin(store, "run-1");
      if (cut) {
        fs::resize_file(path, 100);
      } else {
        const auto bytes = bytes_of(other);
        const int file = ::open(path.c_str(), O_WRONLY);
        REQUIRE(::pwrite(file, bytes.data(), bytes.size(), 0) ==
                static_cast<ssize_t>(bytes.size()));
        ::close(file);
      }
      after = bytes_of(path);
      CHECK_THROWS_WITH(begin(store, "run-2"),
                        ContainsSubstring(cut ? "it was cut from" : "other contents were written"));
    }
    CHECK(bytes_of(path) == after);
    CHECK_FALSE(fs::exists(path + "-wal"));
    // The log that the file no longer fits is kept beside it under another name.
    int kept = 0;
    for (const auto& entry : fs::directory_iterator(folder.file("")))
      kept += entry.path().string().find("-wal.kept-") != std::string::npos ? 1 : 0;
    CHECK(kept > 0);
  }
  CHECK(runs_in(path) == 3);
}

TEST_CASE("two writers of one database are no damage to each other", "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("x.sqlite");
  Store one(path);
  Store two(path);
  for (int i = 0; i < 20; ++i) {
    begin(one, "one-" + std::to_string(i));
    begin(two, "two-" + std::to_string(i));
  }
  CHECK(runs_in(path) == 40);
}

namespace {

/// Whether this process holds SQLite's lock of who has the database open, as others see it.
bool open_for_others(const std::string& path) {
  const pid_t other = fork();
  if (other == 0) {
    // SHARED_FIRST and SHARED_SIZE of SQLite's file format.
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = 0x40000000 + 2;
    lock.l_len = 510;
    const int file = open(path.c_str(), O_RDWR);
    _exit(fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? 0 : 1);
  }
  int status = 1;
  waitpid(other, &status, 0);
  return status == 0;
}

}  // namespace

TEST_CASE("readings of the file drop no lock, so that no other process takes the log away",
          "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("x.sqlite");
  Store store(path);
  CHECK(open_for_others(path));
  begin(store, "run-1");
  CHECK(open_for_others(path));
  CHECK(runs_in(path) == 1);
  CHECK(open_for_others(path));
  begin(store, "run-2");
  CHECK(open_for_others(path));
}
