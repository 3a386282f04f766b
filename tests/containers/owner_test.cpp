#include "containers/owner.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "core/vocabulary/pid_namespace.hpp"
#include "core/vocabulary/text.hpp"

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
