#include "containers/owner.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>

#include "core/vocabulary/pid_namespace.hpp"
#include "core/vocabulary/text.hpp"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080  // headers of a C library before 2.32
#endif

using namespace dynamiccl;

TEST_CASE("this process owns what it makes") { CHECK(owner_alive(owner_token())); }

TEST_CASE("a reused pid, another boot and nonsense are no living owner") {
  auto parts = split(owner_token(), '.');
  REQUIRE(parts.size() == 4);
  const std::string here = "." + parts[3];
  CHECK_FALSE(owner_alive(parts[0] + "." + parts[1] + "1." + parts[2] + here));
  CHECK_FALSE(owner_alive(parts[0] + "." + parts[1] + ".00000000" + here));
  for (const char* nonsense : {"", "..", "1.2", "x.y.z", "../self.1.2", "1.2.3.4.5"})
    CHECK_FALSE(owner_alive(nonsense));
  CHECK_FALSE(owner_alive(parts[0] + "." + parts[1] + "." + parts[2] + ".x"));
  // As versions before namespaces wrote it.
  CHECK(owner_alive(parts[0] + "." + parts[1] + "." + parts[2]));
}

namespace {

/// First process of a PID namespace with a /proc of its own; writes its token and waits.
[[noreturn]] void live_apart(int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const bool apart = unshare(CLONE_NEWNS) == 0 &&
                     mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                     mount("proc", "/proc", "proc", 0, nullptr) == 0;
  const std::string token = apart ? owner_token() : "none";
  if (write(out, token.data(), token.size()) > 0) pause();
  _exit(0);
}

}  // namespace

TEST_CASE("an owner in another container is left alone while it may live") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t parent = fork();
  if (parent == 0) {
    if (unshare(CLONE_NEWPID) == 0 && fork() == 0) live_apart(ends[1]);
    close(ends[1]);
    pause();
  }
  close(ends[1]);
  char buffer[128];
  const ssize_t count = read(ends[0], buffer, sizeof buffer);
  const std::string token(buffer, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  const auto parts = split(token, '.');
  const bool alive = owner_alive(token);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  if (parts.size() != 4) SKIP("this user may not make a PID namespace with a /proc of its own");
  CHECK(parts[0] == "1");
  CHECK(alive);
  const auto where = std::stoull(parts[3]);
  CHECK(where != own_pid_namespace());
  // Where nobody collects the dead of other namespaces, it does not become empty: a while will do.
  for (int i = 0; i < 100 && !pid_namespace_is_empty(where); ++i) usleep(20000);
  // Root on the machine itself sees that nobody is left there; anybody else cannot know.
  const bool empty = pid_namespace_is_empty(where);
  const bool may_live = owner_alive(token);
  if (empty == pid_namespace_is_empty(where)) CHECK(may_live != empty);
  CHECK_FALSE(pid_namespace_is_empty(own_pid_namespace()));
}

TEST_CASE("a dead process, also one not yet collected, is no living owner") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string token = owner_token();
    const ssize_t written = write(ends[1], token.data(), token.size());
    _exit(written > 0 ? 0 : 1);
  }
  char buffer[128];
  const ssize_t count = read(ends[0], buffer, sizeof buffer);
  REQUIRE(count > 0);
  const std::string token(buffer, static_cast<std::size_t>(count));
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  CHECK_FALSE(owner_alive(token));
  waitpid(child, nullptr, 0);
  CHECK_FALSE(owner_alive(token));
}

namespace {

/// What a child finds whose /proc is another one: 1 for true, 0 for false, 2 where it cannot be
/// made.
int found_with(const char* proc, const char* options, uid_t user, bool (*look)(const std::string&),
               const std::string& token) {
  const pid_t child = fork();
  if (child == 0) {
    const bool apart = unshare(CLONE_NEWNS) == 0 &&
                       mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       mount(proc, "/proc", proc, 0, options) == 0 &&
                       setresuid(user, user, user) == 0;
    _exit(apart ? static_cast<int>(look(token)) : 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("an owner that /proc does not show is left alone", "[safety]") {
  const std::string mine = owner_token();
  // No /proc at all: nobody is seen, dead or alive.
  const int without = found_with("tmpfs", nullptr, geteuid(), owner_alive, mine);
  if (without == 2) SKIP("this user may not mount another /proc");
  CHECK(without == 1);
  // Another user's processes are hidden from ordinary ones on many shared machines.
  constexpr uid_t kNobody = 65534;
  CHECK(found_with("proc", "hidepid=2", kNobody, owner_alive, mine) == 1);
  CHECK(found_with("proc", "hidepid=1", kNobody, owner_alive, mine) == 1);
  // Processes alone: the machine's boot is not told. Kernels before 5.8 do not know it.
  CHECK(found_with("proc", "subset=pid", geteuid(), owner_alive, mine) != 0);
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  auto parts = split(mine, '.');
  REQUIRE(parts.size() == 4);
  const std::string dead = std::to_string(gone) + ".1." + parts[2] + "." + parts[3];
  CHECK(found_with("proc", "hidepid=2", kNobody, owner_alive, dead) == 0);
}

TEST_CASE("an owner is left alone where another clock says when it began", "[safety]") {
  const std::string mine = owner_token();
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWTIME) != 0) _exit(2);
    const bool shifted = static_cast<bool>(std::ofstream("/proc/self/timens_offsets")
                                           << "boottime 1000 0" << std::flush);
    if (!shifted) _exit(2);
    // Children are the first in it.
    const pid_t within = fork();
    if (within == 0) _exit(static_cast<int>(owner_alive(mine)));
    int status = 0;
    waitpid(within, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) SKIP("this user may not make a time namespace");
  CHECK(WEXITSTATUS(status) == 1);
}

TEST_CASE("an owner whose clock is another one is left alone by others", "[safety]") {
  int ends[2] = {};
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool apart =
        unshare(CLONE_NEWTIME) == 0 && static_cast<bool>(std::ofstream("/proc/self/timens_offsets")
                                                         << "boottime 1000 0" << std::flush);
    const pid_t within = apart ? fork() : -1;
    if (within == 0) {
      const std::string token = owner_token();
      static_cast<void>(!write(ends[1], token.data(), token.size()));
      close(ends[1]);
      pause();
    }
    close(ends[1]);
    if (within > 0) waitpid(within, nullptr, 0);
    _exit(0);
  }
  close(ends[1]);
  char text[128] = {};
  const ssize_t size = read(ends[0], text, sizeof text - 1);
  close(ends[0]);
  const std::string token(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  if (token.empty()) {
    waitpid(child, nullptr, 0);
    SKIP("this user may not make a time namespace");
  }
  INFO(token);
  CHECK(owner_alive(token));
  kill(static_cast<pid_t>(std::stol(token)), SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK_FALSE(owner_alive(token));
}
