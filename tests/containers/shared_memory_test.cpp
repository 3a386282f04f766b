#include "containers/shared_memory.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "support.hpp"

using namespace dynamiccl;
namespace fs = std::filesystem;

namespace {

std::string segment(const TempFolder& folder, const std::string& name) {
  const std::string path = folder.path() + "/" + name;
  std::ofstream(path) << std::string(4096, 'x');
  return path;
}

/// A process other than this one that opens or maps the file until it is ended.
class User {
 public:
  User(const std::string& path, bool map) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    child_ = fork();
    if (child_ == 0) {
      const int file = open(path.c_str(), O_RDONLY);
      if (map) {
        if (mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED) _exit(1);
        close(file);
      }
      if (write(ready[1], "y", 1) != 1) _exit(1);
      pause();
      _exit(0);
    }
    close(ready[1]);
    char answer = 'n';
    REQUIRE(read(ready[0], &answer, 1) == 1);
    close(ready[0]);
  }
  ~User() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  User(const User&) = delete;
  User& operator=(const User&) = delete;

 private:
  pid_t child_ = 0;
};

}  // namespace

TEST_CASE("of shared memory only what nobody uses, of this user's and of this time, is removed",
          "[safety]") {
  const TempFolder folder;
  const auto now = static_cast<double>(std::time(nullptr));
  const auto left = segment(folder, "vader_segment.host.0.1a2b0001.0");
  const auto of_mpich = segment(folder, "mpich_shar_tmpA1b2C3");
  const auto of_others = segment(folder, "somebodys");
  const auto mapped = segment(folder, "vader_segment.host.0.1a2b0001.1");
  const auto open = segment(folder, "nccl-abcdef");
  fs::create_symlink(of_others, folder.path() + "/nccl-link");
  const User mapper(mapped, true);
  const User opener(open, false);

  // Made before the run was.
  CHECK(remove_left_segments(folder.path(), now + 1000).removed.empty());
  auto removed = remove_left_segments(folder.path(), now - 1).removed;
  std::sort(removed.begin(), removed.end());
  CHECK(removed == std::vector<std::string>{of_mpich, left});
  for (const auto& kept : {of_others, mapped, open}) CHECK(fs::exists(kept));
  CHECK(fs::is_symlink(folder.path() + "/nccl-link"));
  CHECK(remove_left_segments(folder.path() + "/no-such-folder", 0).removed.empty());
}

TEST_CASE("sockets that nobody listens on go, living ones stay", "[safety]") {
  const TempFolder folder;
  const auto bound = [&](const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = folder.path() + "/" + name;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path.c_str());
    const int file = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    REQUIRE(bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    return std::pair{file, path};
  };
  const auto [living, living_path] = bound("nccl-socket-0-abc");
  const auto [dead, dead_path] = bound("nccl-socket-1-abc");
  const auto [other, other_path] = bound("somebodys-socket");
  close(dead);
  close(other);
  CHECK(remove_left_segments(folder.path(), 0).removed == std::vector<std::string>{dead_path});
  CHECK(fs::exists(living_path));
  CHECK(fs::exists(other_path));
  close(living);
}

TEST_CASE("a segment that its user sees under another path is in use", "[safety]") {
  const TempFolder folder;
  const auto used = segment(folder, "nccl-shm-abcdef");
  fs::create_hard_link(used, folder.path() + "/as-a-container-sees-it");
  const User mapper(folder.path() + "/as-a-container-sees-it", true);
  CHECK(remove_left_segments(folder.path(), 0).removed.empty());
  CHECK(fs::exists(used));
}

namespace {

/// What is removed by a process with PID, IPC and mount namespaces of its own, which does not see
/// this one: "" where there may be none, else the names, each with a line break, and ".".
std::string removed_in_a_container(const std::string& folder, const std::string& mounted_at) {
  int names[2];
  REQUIRE(pipe(names) == 0);
  const pid_t child = fork();
  if (child == 0) {
    close(names[0]);
    if (unshare(CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNS) != 0) _exit(0);
    if (const pid_t inner = fork(); inner != 0) {
      waitpid(inner, nullptr, 0);
      _exit(0);
    }
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("proc", "/proc", "proc", 0, nullptr) != 0 ||
        (!mounted_at.empty() &&
         mount(folder.c_str(), mounted_at.c_str(), nullptr, MS_BIND, nullptr) != 0))
      _exit(0);
    std::string text;
    const auto left = remove_left_segments(mounted_at.empty() ? folder : mounted_at, 0);
    for (const auto& path : left.removed) text += fs::path(path).filename().string() + "\n";
    for (const auto& path : left.kept) text += "kept " + fs::path(path).filename().string() + "\n";
    text += ".";
    _exit(write(names[1], text.data(), text.size()) < 0 ? 1 : 0);
  }
  close(names[1]);
  std::string text(4096, '\0');
  const auto count = read(names[0], text.data(), text.size());
  close(names[0]);
  waitpid(child, nullptr, 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return text;
}

}  // namespace

TEST_CASE("what a process that is not seen holds stays", "[safety]") {
  const TempFolder folder;
  const auto shared = segment(folder, "nccl-shm-abcdef");
  const auto mark = segment(folder, "nccl-gpu-0000:01:00.0");
  const int file = open(shared.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(flock(file, LOCK_SH) == 0);
  const int marked = open(mark.c_str(), O_RDWR | O_CLOEXEC);
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  REQUIRE(fcntl(marked, F_SETLK, &whole) == 0);
  const auto left = segment(folder, "nccl-shm-ghijkl");
  const TempFolder places;
  const std::string place = places.path() + "/of a job";
  fs::create_directory(place);
  const auto mounted = removed_in_a_container(folder.path(), place);
  if (mounted.empty()) SKIP("no namespaces of one's own here");
  // A folder of the machine: others may use it without a lock.
  CHECK(mounted == "kept nccl-shm-ghijkl\n.");
  const auto own = removed_in_a_container(folder.path(), "");
  CHECK((own == "kept nccl-shm-ghijkl\n." || own == "nccl-shm-ghijkl\n."));
  CHECK(fs::exists(shared));
  CHECK(fs::exists(mark));
  close(file);
  close(marked);
}
