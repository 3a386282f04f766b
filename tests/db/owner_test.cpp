#include "db/owner.hpp"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "core/vocabulary/pid_namespace.hpp"

using namespace dynamiccl;

TEST_CASE("a process is told alive, dead, reused or out of sight") {
  const auto me = this_process();
  CHECK(me.pid == getpid());
  CHECK_FALSE(me.boot_id.empty());
  CHECK(state_of(me) == ProcessState::alive);

  auto other = me;
  other.start_ticks += 1;
  CHECK(state_of(other) == ProcessState::dead);
  other = me;
  other.boot_id = "an earlier boot";
  CHECK(state_of(other) == ProcessState::dead);
  other.host = "elsewhere";
  CHECK(state_of(other) == ProcessState::unknown);
  other = me;
  other.pid_namespace += 1;
  // Nobody is in that namespace, but only root on the machine itself can know.
  const bool known = pid_namespace_is_empty(static_cast<std::uint64_t>(other.pid_namespace));
  CHECK(state_of(other) == (known ? ProcessState::dead : ProcessState::unknown));

  const pid_t child = fork();
  if (child == 0) _exit(0);
  other = me;
  other.pid = child;
  waitpid(child, nullptr, 0);
  CHECK(state_of(other) == ProcessState::dead);
}

TEST_CASE("without a /proc no process is told dead", "[safety]") {
  const auto me = this_process();
  const pid_t child = fork();
  if (child == 0) {
    const bool apart = unshare(CLONE_NEWNS) == 0 &&
                       mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       mount("tmpfs", "/proc", "tmpfs", 0, nullptr) == 0;
    _exit(!apart ? 2 : state_of(me) == ProcessState::unknown ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) SKIP("this user may not mount another /proc");
  CHECK(WEXITSTATUS(status) == 0);
}
