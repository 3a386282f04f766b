// Where commands read and write, and what others may have put there.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <functional>

#include "core/vocabulary/text.hpp"
#include "orchestrator/run/launch_folders.hpp"
#include "orchestrator/run/run_setup.hpp"
#include "tests/orchestrator/cli/program.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Another user, who has nothing here.
constexpr uid_t kStranger = 65533;

/// A folder in which everybody may make something, as /tmp.
std::string everybodys_folder(const Folder& folder) {
  const auto path = folder.path("everybodys");
  std::filesystem::create_directories(path);
  REQUIRE(chmod(path.c_str(), 01777) == 0);
  return path;
}

void give_to_stranger(const std::string& path) {
  REQUIRE(lchown(path.c_str(), kStranger, kStranger) == 0);
}

/// Called with what this process is about to make.
std::function<void(const char*)>& before_mkdir() {
  static std::function<void(const char*)> hook;
  return hook;
}

}  // namespace

/// In place of the C library's, for the standard library too.
extern "C" int mkdir(const char* path, mode_t mode) noexcept {
  if (before_mkdir()) before_mkdir()(path);
  return static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}

TEST_CASE("a pipe or a device in a file's place holds up no command", "[safety]") {
  const Folder folder;
  const auto pipe = folder.path("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto file = DYNAMICCL_SOURCE_DIR "/experiments/tune_smoke.toml";
  for (const std::string& named : {pipe, std::string("/dev/zero")}) {
    INFO(named);
    for (const auto& command : std::vector<std::vector<std::string>>{
             {"export", named, "--format", "nccl", "--out", folder.path("out")},
             {"tune", file, "--agent", "ppo", "--policy", named, "--db", folder.path("x.sqlite")},
             {"tune", file, "--apply", named, "--db", folder.path("x.sqlite")}}) {
      INFO(command.front() << " " << command[2]);
      const auto refused = run(command);
      CHECK(refused.exit_code == 2);
      CHECK_THAT(refused.err, ContainsSubstring(named + ": is no regular file"));
    }
  }
}

TEST_CASE("clean takes no folder for a launch's that has no id for its name", "[safety]") {
  const Folder folder;
  const auto db = database_with(folder, kSmallOsuTable);
  const std::string ours = "0a1b2c3d-0000-4000-8000-00000000000";
  const auto make = [&](const std::string& name) {
    std::filesystem::create_directories(folder.path("runs/" + name));
  };
  // A database of somebody else may call its run as a folder here is called.
  execute(db, "UPDATE run SET uuid = 'photos'");
  make("photos/2024");
  make("photos/" + ours + "1");
  CHECK(run({"clean", "--db", db}).exit_code == 0);
  CHECK(std::filesystem::exists(folder.path("runs/photos/2024")));
  CHECK(std::filesystem::exists(folder.path("runs/photos/" + ours + "1")));
  execute(db, "UPDATE run SET uuid = '" + ours + "2'");
  make(ours + "2/2024");
  make(ours + "2/" + ours + "3");
  CHECK(run({"clean", "--db", db}).exit_code == 0);
  CHECK(std::filesystem::exists(folder.path("runs/" + ours + "2/2024")));
  CHECK_FALSE(std::filesystem::exists(folder.path("runs/" + ours + "2/" + ours + "3")));
}

TEST_CASE("a run keeps nothing in a folder that another user made where everybody may",
          "[safety]") {
  if (geteuid() != 0) SKIP("needs root to give a folder to another user");
  const Folder folder;
  const auto everybodys = everybodys_folder(folder);
  std::filesystem::create_directories(everybodys + "/runs");
  std::filesystem::create_directories(everybodys + "/mine");
  give_to_stranger(everybodys + "/runs");
  const auto refusal = ContainsSubstring("another user (number 65533) made it");
  CHECK_THROWS_WITH(launch_site(folder.path("x.sqlite"), everybodys + "/runs/deep"), refusal);
  CHECK_NOTHROW(launch_site(everybodys + "/mine/x.sqlite", ""));
  // Nor is a database that was put there first filled for who put it.
  const auto table = folder.file("t.txt", kSmallOsuTable);
  const auto taken = everybodys + "/taken.sqlite";
  std::ofstream(taken).flush();
  give_to_stranger(taken);
  const auto stored = run({"import", table, "--ranks", "2", "--db", taken});
  CHECK(stored.exit_code == 2);
  CHECK_THAT(stored.err, refusal);
  CHECK(std::filesystem::file_size(taken) == 0);
  REQUIRE(chmod(everybodys.c_str(), 0755) == 0);
  CHECK(launch_site(everybodys + "/x.sqlite", "").run_folder == everybodys + "/runs");
}

TEST_CASE("launches go beside another user's folder of launches, and clean finds them there",
          "[safety]") {
  if (geteuid() != 0) SKIP("needs root to give a folder to another user");
  const Folder folder;
  const auto everybodys = everybodys_folder(folder);
  std::filesystem::create_directories(everybodys + "/runs");
  give_to_stranger(everybodys + "/runs");
  const auto db = everybodys + "/x.sqlite";
  const auto own = everybodys + "/runs-0";
  REQUIRE(
      run({"import", folder.file("t.txt", kSmallOsuTable), "--ranks", "2", "--db", db}).exit_code ==
      0);
  CHECK(launch_site(db, "").run_folder == own);
  CHECK(std::filesystem::is_empty(everybodys + "/runs"));
  // Of a launch that was killed before it had a row.
  const std::string ours = "0a1b2c3d-0000-4000-8000-00000000000";
  execute(db, "UPDATE run SET uuid = '" + ours + "2'");
  for (const auto& runs : {own, everybodys + "/runs"})
    std::filesystem::create_directories(runs + "/" + ours + "2/" + ours + "3");
  CHECK(run({"clean", "--db", db}).exit_code == 0);
  for (const auto& runs : {own, everybodys + "/runs"}) CHECK(std::filesystem::is_empty(runs));
  // Of root's an ordinary user can make nothing either.
  REQUIRE(chmod(folder.path("").c_str(), 0755) == 0);
  REQUIRE(chown((everybodys + "/runs").c_str(), 0, 0) == 0);
  REQUIRE(seteuid(kStranger) == 0);
  const auto strangers = runs_folder(db);
  REQUIRE(seteuid(0) == 0);
  CHECK(strangers == everybodys + "/runs-65533");
  CHECK(runs_folder(db) == everybodys + "/runs");
  // Both names are taken: who, where, and what to do.
  for (const auto& runs : {own, everybodys + "/runs"}) give_to_stranger(runs);
  CHECK_THROWS_WITH(launch_site(db, ""),
                    ContainsSubstring(own + ": another user (number 65533) made it") &&
                        ContainsSubstring("choose another place with --db or --out"));
}

TEST_CASE("a run keeps nothing in a folder that another user makes just before it does",
          "[safety]") {
  if (geteuid() != 0) SKIP("needs root to give a folder to another user");
  const Folder folder;
  const auto everybodys = everybodys_folder(folder);
  bool made = false;
  before_mkdir() = [&](const char* path) {
    if (made || everybodys + "/runs" != path) return;
    made = true;
    CHECK(syscall(SYS_mkdirat, AT_FDCWD, path, 0777) == 0);
    CHECK(chown(path, kStranger, kStranger) == 0);
  };
  CHECK_THROWS_WITH(launch_site(everybodys + "/x.sqlite", ""),
                    ContainsSubstring("/runs: another user (number 65533) made it"));
  before_mkdir() = nullptr;
  CHECK(made);
  // By then it is only in the way.
  CHECK(launch_site(everybodys + "/x.sqlite", "").run_folder == everybodys + "/runs-0");
}

TEST_CASE("what is written beside a file goes through no link that lies there", "[safety]") {
  const Folder folder;
  const auto db = database_with(folder, kSmallOsuTable);
  const auto victim = folder.file("victim", "mine\n");
  const auto out = folder.path("r.html");
  // What another process writes at the same time is its own: it would be put in place half done.
  const auto others = folder.file("r.html.part", "half");
  CHECK(shell(fmt::format("ln -s {0} {1}.$$.part; exec {2} report last --out {1} --db {3}", victim,
                          out, kProgram, db))
            .exit_code == 0);
  CHECK(std::filesystem::file_size(others) == 4);
  CHECK(std::filesystem::file_size(victim) == 5);
  CHECK(std::filesystem::is_regular_file(std::filesystem::symlink_status(folder.path("r.html"))));
}

TEST_CASE("what is written goes by no name that another user made where everybody may",
          "[safety]") {
  if (geteuid() != 0) SKIP("needs root to give a link to another user");
  const Folder folder;
  const auto db = database_with(folder, kSmallOsuTable);
  const auto victim = folder.file("victim", "mine\n");
  std::filesystem::create_directories(folder.path("own"));
  const auto experiment = folder.file("e.toml", testing::kOneCell);
  const auto everybodys = everybodys_folder(folder);
  const auto link = [&](const std::string& name, const std::string& target) {
    std::filesystem::create_symlink(target, everybodys + name);
    give_to_stranger(everybodys + name);
  };
  link("/file", victim);
  link("/folder", folder.path("own"));
  link("/deep", everybodys + "/further");
  std::filesystem::create_symlink(folder.path("own"), everybodys + "/further");
  std::filesystem::create_symlink(everybodys + "/file", folder.path("by-way"));
  for (const auto& place : {everybodys + "/file", everybodys + "/folder/r.html",
                            everybodys + "/deep/r.html", folder.path("by-way")}) {
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"report", "last", "--html", "--db", db, "--out"},
          {"train", "--seeds", "1", "--out"},
          {"tune", experiment, "--db", folder.path("none.sqlite"), "--table"}}) {
      auto words = command;
      words.push_back(place);
      INFO(command.front() << " " << place);
      const auto refused = run(words);
      CHECK(refused.exit_code == 2);
      CHECK_THAT(refused.err, ContainsSubstring("another user (number 65533) made it") &&
                                  ContainsSubstring("choose another place with " + command.back()));
    }
  }
  CHECK_THROWS_WITH(launch_site(everybodys + "/folder/x.sqlite", ""),
                    ContainsSubstring("another user (number 65533) made it"));
  CHECK(std::filesystem::file_size(victim) == 5);
  CHECK(std::filesystem::is_empty(folder.path("own")));
  // One's own stays a link, and what it points to is written.
  const auto own = everybodys + "/own.html";
  std::filesystem::create_symlink(folder.file("own/r.html", "old"), own);
  CHECK(run({"report", "last", "--out", own, "--db", db}).exit_code == 0);
  CHECK(std::filesystem::is_symlink(own));
  CHECK(std::filesystem::file_size(folder.path("own/r.html")) > 1000);
}

TEST_CASE("what jobs load is written into no folder that another user made", "[safety]") {
  if (geteuid() != 0) SKIP("needs root to give a folder to another user");
  const Folder folder;
  const auto everybodys = everybodys_folder(folder);
  std::filesystem::create_directories(everybodys + "/taken");
  give_to_stranger(everybodys + "/taken");
  REQUIRE(chmod((everybodys + "/taken").c_str(), 0777) == 0);
  const auto refusal = ContainsSubstring("another user (number 65533) made it");
  const auto db = folder.path("x.sqlite");
  REQUIRE(run({"import", folder.file("t.txt", kSmallOsuTable), "--ranks", "2", "--backend",
               "openmpi", "--db", db})
              .exit_code == 0);
  const std::vector<std::vector<std::string>> commands{
      {"tune", "--db", folder.path("t.sqlite"), "--plugin", kProgram, "--", "true"},
      {"export", "--measured", "last", "--format", "openmpi", "--db", db}};
  for (auto command : commands) {
    INFO(command.front());
    for (const char* name : {"/taken", "/taken/deep"}) {
      auto words = command;
      words.insert(words.begin() + 1, {"--out", everybodys + name});
      const auto refused = run(words);
      CHECK(refused.exit_code == 2);
      CHECK_THAT(refused.err, refusal);
    }
    // From inside of it, by a name that has no folder.
    std::string line = "cd " + everybodys + "/taken && " + kProgram;
    command.insert(command.begin() + 1, {"--out", "here"});
    for (const auto& word : command) line += " " + shell_quote(word);
    const auto refused = shell(line);
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.err, refusal);
  }
  CHECK(std::filesystem::is_empty(everybodys + "/taken"));
}

TEST_CASE("a launch ends no process that has another folder of the same name", "[safety]") {
  if (geteuid() != 0) SKIP("needs root for a mount namespace");
  const Folder folder;
  const auto launch = folder.path("tuned/launches/launch-000");
  std::filesystem::create_directories(launch);
  // Its program lies in that folder, which makes it a process that maps a file there.
  const auto other = shell(
      fmt::format("unshare --mount /bin/bash -c 'mount -t tmpfs none {0} && cp \"$(type -P "
                  "sleep)\" {0}/other && exec {0}/other 60' "
                  ">/dev/null 2>&1 & for i in $(seq 3000); do grep -q {0}/other /proc/$!/maps "
                  "&& break; sleep 0.02; done; grep -q {0}/other /proc/$!/maps || exit 9; "
                  "{1} tune --db {2} --out {3} --plugin {1} -- true; kill $!",
                  launch, kProgram, folder.path("x.sqlite"), folder.path("tuned")));
  INFO(other.err);
  CHECK_THAT(other.err, ContainsSubstring("no rank of it loaded the plugin"));
  CHECK(other.exit_code == 0);
}
