#include "containers/run_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "containers/paths.hpp"
#include "core/vocabulary/error.hpp"
#include "support.hpp"
#include "temp_user.hpp"

using namespace dynamiccl;
namespace fs = std::filesystem;

TEST_CASE("environments of one run get names of their own and leave no folder") {
  const TempFolder temp;
  const ScopedVariable root("DYNAMICCL_RUN_FOLDER", temp.path() + "/runs");
  std::string first_path;
  {
    CHECK(RunFolder::planned_name("run-1") == RunFolder::planned_name("run-1"));
    const std::string planned = RunFolder::planned_name("run-1");
    const RunFolder first("run-1");
    const RunFolder second("run-1");
    CHECK(first.name() == planned);
    CHECK(first.name() != second.name());
    CHECK(RunFolder::planned_name("run-2") != first.name());
    first.write_script("agent", "#!/bin/sh\n");
    first_path = first.path();
    CHECK(access((first_path + "/agent").c_str(), X_OK) == 0);
  }
  CHECK_FALSE(fs::exists(first_path));
}

TEST_CASE("the memory that containers share goes with the folder, of a dead owner's, too") {
  const TempFolder temp;
  const ScopedVariable root("DYNAMICCL_RUN_FOLDER", temp.path());
  std::string memory;
  {
    const RunFolder folder("run-of-memory-" + std::to_string(getpid()));
    memory = RunFolder::tmpfs_of(folder.name());
    folder.make_tmpfs();
    std::ofstream(memory + "/nccl-shm-abcdef") << "x";
    CHECK((fs::status(memory).permissions() & fs::perms::sticky_bit) != fs::perms::none);
    CHECK_THROWS_AS(folder.make_tmpfs(), Error);
  }
  CHECK_FALSE(fs::exists(memory));
  const std::string dead = "dyn-dead-" + std::to_string(getpid());
  fs::create_directory(temp.path() + "/" + dead);
  std::ofstream(temp.path() + "/" + dead + "/owner") << "999999999.1.00000000\n";
  fs::create_directory(RunFolder::tmpfs_of(dead));
  CHECK(remove_run_folder(dead) ==
        std::vector<std::string>{RunFolder::tmpfs_of(dead), temp.path() + "/" + dead});
}

TEST_CASE("only folders of dead owners are abandoned") {
  const TempFolder temp;
  const ScopedVariable root("DYNAMICCL_RUN_FOLDER", temp.path());
  const RunFolder alive("run");
  fs::create_directory(temp.path() + "/dyn-dead-0");
  std::ofstream(temp.path() + "/dyn-dead-0/owner") << "999999999.1.00000000\n";
  CHECK(abandoned_run_folders() == std::vector<std::string>{"dyn-dead-0"});
}

TEST_CASE("an owner that is no small file of ours is no owner, and nobody waits for it") {
  const TempFolder temp;
  const ScopedVariable root("DYNAMICCL_RUN_FOLDER", temp.path());
  const RunFolder alive("run");
  const auto made = [&](const std::string& name) {
    fs::create_directory(temp.path() + "/" + name);
    return temp.path() + "/" + name + "/owner";
  };
  REQUIRE(mkfifo(made("dyn-pipe-0").c_str(), 0600) == 0);
  fs::create_symlink("/dev/zero", made("dyn-zero-0"));
  fs::create_symlink(alive.path() + "/owner", made("dyn-link-0"));
  fs::create_directory(made("dyn-folder-0"));
  std::ofstream(made("dyn-large-0")) << std::string(1 << 20, '1');
  // Young ones may be between two steps of their maker.
  CHECK(abandoned_run_folders().empty());
  for (const auto& entry : fs::directory_iterator(temp.path()))
    fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - std::chrono::minutes(2));
  auto abandoned = abandoned_run_folders();
  std::sort(abandoned.begin(), abandoned.end());
  CHECK(abandoned == std::vector<std::string>{"dyn-folder-0", "dyn-large-0", "dyn-link-0",
                                              "dyn-pipe-0", "dyn-zero-0"});
}

TEST_CASE("a run folder into which others may write is not used") {
  const TempFolder temp;
  fs::create_directory(temp.path() + "/runs");
  REQUIRE(chmod((temp.path() + "/runs").c_str(), 0777) == 0);
  const ScopedVariable root("DYNAMICCL_RUN_FOLDER", temp.path() + "/runs");
  CHECK_THROWS_AS(RunFolder("run"), Error);
  REQUIRE(chmod((temp.path() + "/runs").c_str(), 0755) == 0);
  CHECK_NOTHROW(RunFolder("run"));
}

TEST_CASE("a folder that belongs to somebody else is not trusted") {
  if (geteuid() != 0) SKIP("needs root to make a folder that is somebody else's");
  const TempFolder temp;
  fs::create_directory(temp.path() + "/runs");
  REQUIRE(chown((temp.path() + "/runs").c_str(), 12345, 12345) == 0);
  const ScopedVariable root("DYNAMICCL_RUN_FOLDER", temp.path() + "/runs");
  CHECK_THROWS_AS(RunFolder("run"), Error);
}

TEST_CASE("an ordinary user's run folder is the session's own, else one that nobody else made") {
  if (geteuid() != 0) SKIP("needs root to make a user");
  const TempUser user;
  const std::string uid = user.run([] { return std::to_string(geteuid()); });
  const std::string shared = user.shared_folder();
  const auto root = [&](const std::string& session) {
    return user.run([&] {
      setenv("XDG_RUNTIME_DIR", session.c_str(), 1);
      unsetenv("XDG_CACHE_HOME");
      return run_folder_root();
    });
  };
  const TempFolder temp;
  const std::string session = temp.path() + "/session";
  fs::create_directory(session);
  REQUIRE(chmod(temp.path().c_str(), 0755) == 0);
  // A session's folder that is somebody else's is none.
  CHECK(root(session) == shared);
  const auto id = static_cast<uid_t>(std::stoul(uid));
  REQUIRE(chown(session.c_str(), id, id) == 0);
  REQUIRE(chmod(session.c_str(), 0700) == 0);
  CHECK(root(session) == session + "/dynamiccl");
  REQUIRE(mkdir(shared.c_str(), 0777) == 0);
  CHECK(root("") == user.home() + "/.cache/dynamiccl/run");
  REQUIRE(chown(shared.c_str(), id, id) == 0);
  CHECK(root("") == shared);
}
