#include "containers/owner.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "core/text.hpp"

using namespace dynamiccl;

TEST_CASE("this process owns what it makes") { CHECK(owner_alive(owner_token())); }

TEST_CASE("a reused pid, another boot and nonsense are no living owner") {
  auto parts = split(owner_token(), '.');
  REQUIRE(parts.size() == 3);
  CHECK_FALSE(owner_alive(parts[0] + "." + parts[1] + "1." + parts[2]));
  CHECK_FALSE(owner_alive(parts[0] + "." + parts[1] + ".00000000"));
  for (const char* nonsense : {"", "..", "1.2", "x.y.z", "../self.1.2"})
    CHECK_FALSE(owner_alive(nonsense));
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
