#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <SQLiteCpp/SQLiteCpp.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <iostream>
#include <thread>

#include "core/vocabulary/error.hpp"
#include "db/reader.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

double steady(const CellInfo&, int, int) { return 5.0; }

std::int64_t count(const Reader& reader, const std::string& sql) {
  return std::get<std::int64_t>(reader.query(sql).rows.at(0).at(0));
}

/// A process of its own that tells through a pipe how far it came.
class Child {
 public:
  /// @param body gets a function that tells the parent one character
  explicit Child(const std::function<void(const std::function<void(char)>&)>& body) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      int code = 1;
      try {
        body([&](char c) { static_cast<void>(!write(ends[1], &c, 1)); });
        code = 0;
      } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
      }
      _exit(code);
    }
    close(ends[1]);
    pipe_ = ends[0];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    kill_and_wait();
    close(pipe_);
  }
  /// @returns the next character, 0 when the child is gone
  [[nodiscard]] char next() const {
    char c = 0;
    return read(pipe_, &c, 1) == 1 ? c : '\0';
  }
  void kill_and_wait() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  /// @returns the exit code of a child that ends by itself
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = 0;
  int pipe_ = -1;
};

void check_integrity(const std::string& path) {
  SQLite::Database db(path, SQLite::OPEN_READWRITE);
  CHECK(db.execAndGet("PRAGMA integrity_check").getString() == "ok");
  SQLite::Statement broken(db, "PRAGMA foreign_key_check");
  CHECK_FALSE(broken.executeStep());
}

}  // namespace

TEST_CASE("a writer killed while it stores a launch leaves the state before it", "[G-01]") {
  const ScratchFolder folder;
  const auto path = folder.file("a.sqlite");
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t i = 1; i <= 40; ++i) sizes.push_back(i * 64);
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, sizes);
  const auto& group = plan.groups[0];
  const auto large = make_records(plan.cells, group.id, "x", 2, 2000, steady);
  {
    Store store(path);
    store.begin_run(plan.run, plan.groups, plan.cells);
    store_launch(store, plan, group, 0, steady);
    store.end_run("run-1", "interrupted");
  }
  int in_the_middle = 0;
  for (int block = 1; block <= 3; ++block) {
    Child child([&](const auto& tell) {
      Store store(path);
      store.resume_run("run-1");
      const auto launch = store.begin_launch("run-1", make_start(group.id, block));
      tell('A');
      store.finish_launch(launch, make_end(), large);
      tell('B');
      pause();
    });
    REQUIRE(child.next() == 'A');
    std::this_thread::sleep_for(std::chrono::milliseconds(10 * block));
    child.kill_and_wait();
    if (child.next() == '\0') ++in_the_middle;
  }
  CHECK(in_the_middle > 0);
  check_integrity(path);
  const Store store(path);
  const Reader reader(path);
  const auto finished = count(reader, "SELECT count(*) FROM launch WHERE status = 'ok'");
  CHECK(finished == 1 + 3 - in_the_middle);
  CHECK(count(reader, "SELECT count(*) FROM launch WHERE status = 'interrupted'") == in_the_middle);
  CHECK(count(reader, "SELECT count(*) FROM measurement") == 40 * finished);
  CHECK(count(reader,
              "SELECT count(*) FROM measurement m JOIN launch l ON l.id = m.launch_id "
              "WHERE l.status = 'interrupted'") == 0);
  CHECK(store.finished_launches("run-1").contains({group.id, 0}));
}

TEST_CASE("what a dead writer left running is interrupted at the next open and resumable",
          "[B-08]") {
  const ScratchFolder folder;
  const auto path = folder.file("a.sqlite");
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  const auto& group = plan.groups[0];
  {
    Child writer([&](const auto& tell) {
      Store store(path);
      store.begin_run(plan.run, plan.groups, plan.cells);
      store_launch(store, plan, group, 0, steady);
      store.begin_launch("run-1", make_start(group.id, 1));
      tell('A');
      pause();
    });
    REQUIRE(writer.next() == 'A');
    // While it lives its run is its own.
    Store store(path);
    const Reader reader(path);
    CHECK(text(reader, "SELECT status FROM launch WHERE block = 1") == "running");
    CHECK_THROWS_WITH(store.unfinished_run(plan.run.spec_text, {}),
                      ContainsSubstring("run run-1 is being measured by process"));
    CHECK_THROWS_WITH(store.resume_run("run-1"), ContainsSubstring("is being measured by process"));
    writer.kill_and_wait();
  }
  Store store(path);
  const Reader reader(path);
  CHECK(text(reader, "SELECT status FROM launch WHERE block = 1") == "interrupted");
  CHECK_THAT(text(reader, "SELECT reason FROM launch WHERE block = 1"),
             ContainsSubstring("ended before the outcome was stored"));
  CHECK(text(reader, "SELECT status FROM run") == "interrupted");
  CHECK(store.unfinished_run(plan.run.spec_text, {}) == "run-1");
  CHECK_FALSE(store.unfinished_run(plan.run.spec_text, {"seed=2"}).has_value());

  store.resume_run("run-1");
  CHECK(store.finished_launches("run-1") == std::set<LaunchKey>{{group.id, 0}});
  auto again = make_start(group.id, 1, store.next_attempt("run-1", group.id, 1));
  CHECK(again.attempt == 1);
  store.finish_launch(store.begin_launch("run-1", again), make_end(),
                      make_records(plan.cells, group.id, again.uuid, 2, 10, steady));
  store.end_run("run-1", "complete");
  CHECK_FALSE(store.unfinished_run(plan.run.spec_text, {}).has_value());
  CHECK(count(reader, "SELECT launches FROM v_cell") == 2);
  CHECK(text(reader, "SELECT status FROM v_cell") == "ok");
  CHECK(count(reader, "SELECT count(*) FROM launch") == 3);
}

TEST_CASE("a run whose every launch was tried is resumed where one failed", "[B-08]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  const auto& group = plan.groups.front();
  auto failed = make_end();
  failed.status = LaunchStatus::timed_out;
  store.finish_launch(store.begin_launch("run-1", make_start(group.id, 0)), failed, {});
  store.end_run("run-1", "complete");
  CHECK(store.unfinished_run(plan.run.spec_text, {}) == "run-1");
  store.resume_run("run-1");
  store.finish_launch(store.begin_launch("run-1", make_start(group.id, 0, 1)), make_end(), {});
  store.end_run("run-1", "complete");
  CHECK_FALSE(store.unfinished_run(plan.run.spec_text, {}).has_value());
}

TEST_CASE("a run that ends by an error leaves no launch running") {
  const ScratchFolder folder;
  const auto path = folder.file("a.sqlite");
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  Store store(path);
  store.begin_run(plan.run, plan.groups, plan.cells);
  store.begin_launch("run-1", make_start(plan.groups[0].id, 0));
  store.end_run("run-1", "failed");
  const Reader reader(path);
  CHECK(text(reader, "SELECT status FROM launch") == "interrupted");
  CHECK_THAT(text(reader, "SELECT reason FROM launch"), ContainsSubstring("the run ended before"));
  CHECK(text(reader, "SELECT status FROM run") == "failed");
}

TEST_CASE("a run whose writer is out of sight is not taken over, and what to do is said") {
  const ScratchFolder folder;
  const auto path = folder.file("a.sqlite");
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  Store(path).begin_run(plan.run, plan.groups, plan.cells);
  SQLite::Database(path, SQLite::OPEN_READWRITE)
      .exec("UPDATE run SET owner_host = 'elsewhere', owner_boot_id = 'another', owner_pid = 7");
  const Store store(path);
  CHECK_THROWS_WITH(store.unfinished_run(plan.run.spec_text, {}),
                    ContainsSubstring("process 7 of host elsewhere, which cannot be seen") &&
                        ContainsSubstring("SET status = 'interrupted' WHERE id = 1"));
  SQLite::Database(path, SQLite::OPEN_READWRITE)
      .exec("UPDATE run SET status = 'interrupted' WHERE uuid = 'run-1'");
  CHECK(store.unfinished_run(plan.run.spec_text, {}) == "run-1");
}

TEST_CASE("two processes write the same database at once", "[G-01]") {
  const ScratchFolder folder;
  const auto path = folder.file("a.sqlite");
  const auto write_run = [&](const std::string& id) {
    Store store(path);
    const auto plan = make_plan(id, {"bare-metal"}, {"allreduce"}, {1024});
    store.begin_run(plan.run, plan.groups, plan.cells);
    for (int block = 0; block < 30; ++block)
      store_launch(store, plan, plan.groups[0], block, steady);
    store.end_run(id, "complete");
  };
  // Both also create the file: neither may find it half made.
  Child one([&](const auto&) { write_run("run-1"); });
  Child two([&](const auto&) { write_run("run-2"); });
  CHECK(one.wait() == 0);
  CHECK(two.wait() == 0);
  check_integrity(path);
  CHECK(count(Reader(path), "SELECT count(*) FROM launch WHERE status = 'ok'") == 60);
}

namespace {

/// In a process of its own, with 2 MiB of disk.
void on_small_disk(const std::function<void(const std::string& disk)>& work) {
  const ScratchFolder folder;
  const auto disk = folder.file("small");
  mkdir(disk.c_str(), 0755);
  constexpr int kNotAllowed = 77;
  Child child([&](const auto&) {
    // A file system of its own in a mount namespace of its own: gone with the process.
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", disk.c_str(), "tmpfs", 0, "size=2m") != 0) {
      _exit(kNotAllowed);
    }
    work(disk);
  });
  const int code = child.wait();
  if (code == kNotAllowed) SKIP("this user may not mount a small file system");
  CHECK(code == 0);
}

}  // namespace

TEST_CASE("a full disk is explained and costs nothing stored before", "[G-01]") {
  on_small_disk([](const std::string& disk) {
    const auto path = disk + "/a.sqlite";
    const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {64, 128, 256});
    Store store(path);
    store.begin_run(plan.run, plan.groups, plan.cells);
    int stored = 0;
    try {
      for (; stored < 1000; ++stored) {
        store_launch(store, plan, plan.groups[0], stored, steady, 500);
      }
    } catch (const Error& error) {
      const std::string message = error.what();
      if (message.find("the disk is full") == std::string::npos ||
          message.find("run --resume") == std::string::npos) {
        throw;
      }
    }
    const Reader reader(path);
    const auto kept = count(reader, "SELECT count(*) FROM launch WHERE status = 'ok'");
    if (stored == 0 || stored == 1000 || kept != stored) throw std::runtime_error("lost a launch");
    if (count(reader, "SELECT count(*) FROM measurement") != 3 * kept) {
      throw std::runtime_error("half a launch");
    }
  });
}

TEST_CASE("a disk too full for a new database is explained, wherever it ends", "[G-01]") {
  on_small_disk([](const std::string& disk) {
    constexpr int kPages = 512;
    const std::string page(4096, 'x');
    int explained = 0;
    for (int left = 0; left < 128; left += 4) {
      const auto fill = disk + "/fill";
      {
        std::ofstream file(fill);
        for (int i = 0; i < kPages - left; ++i) file << page << std::flush;
      }
      const auto path = disk + "/a.sqlite";
      try {
        const Store store(path);
      } catch (const Error& error) {
        // Anything that is not explained ends this process.
        const std::string message = error.what();
        if (message.find("database " + path + ": ") == std::string::npos) throw;
        ++explained;
      }
      for (const char* end : {"", "-wal", "-shm", "-journal"}) unlink((path + end).c_str());
      unlink(fill.c_str());
    }
    if (explained == 0) throw std::runtime_error("no disk was full");
  });
}

TEST_CASE("missing permissions are explained, and a database of others can still be read",
          "[G-01]") {
  const ScratchFolder folder;
  const auto shared = folder.file("shared");
  mkdir(shared.c_str(), 0755);
  const auto path = shared + "/a.sqlite";
  {
    Store store(path);
    const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
    store.begin_run(plan.run, plan.groups, plan.cells);
  }
  chmod(folder.file("").c_str(), 0755);
  chmod(path.c_str(), 0444);
  chmod(shared.c_str(), 0555);
  Child child([&](const auto&) {
    // Root may do everything, so an ordinary user must try.
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && setresuid(kNobody, kNobody, kNobody) != 0) _exit(3);
    const auto expect = [](const std::function<void()>& work, const std::string& part) {
      try {
        work();
      } catch (const Error& error) {
        // The name was just given: it is the user's mistake.
        if (std::string(error.what()).find(part) != std::string::npos &&
            error.kind() == ErrorKind::input)
          return;
        throw;
      }
      throw std::runtime_error("no error that says: " + part);
    };
    expect([&] { const Store store(path); }, "may not be written by this user");
    expect([&] { const Store store(shared + "/new.sqlite"); }, "cannot be opened by this user");
    if (count(Reader(path), "SELECT count(*) FROM run") != 1) throw std::runtime_error("no run");
  });
  CHECK(child.wait() == 0);
  chmod(shared.c_str(), 0755);
}
