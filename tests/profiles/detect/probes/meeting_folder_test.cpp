// The folder that isolated ranks are told to meet in, as a probe sees it.
#include "profiles/detect/probes/meeting_folder.hpp"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <optional>

#include "profiles/detect/probes/live_system.hpp"
#include "profiles/detect/probes/probe.hpp"

using Catch::Matchers::ContainsSubstring;
using namespace dynamiccl;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  explicit Folder(const char* above = "/dev/shm")
      : path_(fs::path(above) / ("dynamiccl-meeting-" + std::to_string(getpid()))) {
    fs::create_directories(path_);
    fs::permissions(path_, fs::perms::owner_all);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

/// What is found while `mounted` options lie over the folder; nullopt where nobody may mount.
std::optional<FolderTrouble> trouble_under(const std::string& path, const char* type,
                                           unsigned long flags, const char* options) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", path.c_str(), type, flags, options) != 0)
      _exit(99);
    _exit(static_cast<int>(look_at_meeting_folder(path).trouble));
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) == 99) return std::nullopt;
  return static_cast<FolderTrouble>(WEXITSTATUS(status));
}

}  // namespace

TEST_CASE("a folder for ranks is found fit, or what is wrong with it is told") {
  const Folder folder;
  auto found = look_at_meeting_folder(folder.path());
  CHECK(found.trouble == FolderTrouble::none);
  CHECK(found.why.empty());
  CHECK(found.mode == 0700);
  CHECK(found.owner == geteuid());
  CHECK(found.filesystem == "tmpfs");
  CHECK(fs::is_empty(folder.path()));
  CHECK(look_at_meeting_folder(folder.path() + "/none").trouble == FolderTrouble::missing);
  std::ofstream(folder.path() + "/file") << "x";
  CHECK(look_at_meeting_folder(folder.path() + "/file").trouble == FolderTrouble::not_a_folder);
  // mkdir would not help here.
  REQUIRE(symlink("nowhere", (folder.path() + "/link").c_str()) == 0);
  found = look_at_meeting_folder(folder.path() + "/link");
  CHECK(found.trouble == FolderTrouble::not_a_folder);
  CHECK(found.why == "it is a link to nothing");
  CHECK(unlink((folder.path() + "/link").c_str()) == 0);
  const std::string deep = folder.path() + "/" + std::string(64, 'd');
  fs::create_directory(deep);
  CHECK(look_at_meeting_folder(deep).trouble == FolderTrouble::too_long);
}

TEST_CASE("a folder on a disk, or without room for NCCL's segments, makes no host") {
  const Folder disk("/var/tmp");
  const auto found = look_at_meeting_folder(disk.path());
  if (found.filesystem == "tmpfs") SKIP("/var/tmp is in memory");
  CHECK(found.trouble == FolderTrouble::not_memory);
  CHECK_THAT(found.why, ContainsSubstring("not in a tmpfs"));
  CHECK(fs::is_empty(disk.path()));
}

TEST_CASE("a folder mounted read-only, or full, is found so") {
  const Folder folder;
  const auto read_only = trouble_under(folder.path(), "tmpfs", MS_RDONLY, "mode=700");
  if (!read_only) SKIP("mounting needs root");
  CHECK(*read_only == FolderTrouble::not_writable);
  CHECK(trouble_under(folder.path(), "tmpfs", 0, "mode=700,nr_inodes=1") == FolderTrouble::full);
  CHECK(trouble_under(folder.path(), "tmpfs", 0, "mode=700,size=32m") == FolderTrouble::full);
  // Sockets are no programs and no devices.
  CHECK(trouble_under(folder.path(), "tmpfs", MS_NOEXEC | MS_NOSUID | MS_NODEV, "mode=700") ==
        FolderTrouble::none);
}

TEST_CASE("the probe tells of the folder that the environment names, beside its identity") {
  const Folder folder;
  REQUIRE(setenv("DYNAMICCL_SHARED_FOLDER", folder.path().c_str(), 1) == 0);
  const auto live = make_live_system(nullptr);
  const ProbeRoot root("/");
  const Declarations nothing;
  const auto facts = probe_shared_memory({root, *live, nothing});
  unsetenv("DYNAMICCL_SHARED_FOLDER");
  CHECK(facts["meeting"]["trouble"] == "none");
  CHECK(facts["meeting"]["path"] == folder.path());
  CHECK(facts["meeting"]["mode"] == 0700);
  CHECK(facts["meeting"]["filesystem"] == "tmpfs");
  CHECK(facts["meeting"].contains("size_bytes"));
  // Regimes compare the identity alone.
  CHECK(facts["folder"].size() == 2);
  CHECK_FALSE(probe_shared_memory({root, *live, nothing}).contains("meeting"));
}
