#include "containers/processes.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <string>

namespace dynamiccl {
namespace {

/// A process of this program's own, ended with the scope.
class Started {
 public:
  Started(const char* program, char* const* argv, char* const* environment) {
    pid_ = fork();
    if (pid_ == 0) {
      execve(program, argv, environment);
      _exit(127);
    }
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;
  ~Started() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool runs() const { return pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  pid_t pid_ = 0;
};

std::string sh = "/bin/sh";
std::string option = "-c";

}  // namespace

TEST_CASE("a process that changes its program is never without its variables") {
  std::string script = "i=$((${i:-0}+1)); export i; exec /bin/sh -c \"$0\" \"$0\"";
  std::string variable = "DYNAMICCL_TEST_MARK=here";
  char* argv[] = {sh.data(), option.data(), script.data(), script.data(), nullptr};
  char* environment[] = {variable.data(), nullptr};
  const Started started("/bin/sh", argv, environment);
  while (process_variable(started.pid(), "i").empty()) REQUIRE(started.runs());
  int missed = 0;
  for (int look = 0; look < 1000; ++look)
    if (process_variable(started.pid(), "DYNAMICCL_TEST_MARK") != "here") ++missed;
  CHECK(started.runs());
  CHECK(process_variable(started.pid(), "i") != "1");
  CHECK(missed == 0);
}

TEST_CASE("a process that was given no variables, or has ended, is not waited for") {
  std::string program = "/bin/sleep";
  std::string seconds = "600";
  char* argv[] = {program.data(), seconds.data(), nullptr};
  char* environment[] = {nullptr};
  const Started started("/bin/sleep", argv, environment);
  const auto sleeps = [&] {
    const auto all = list_processes();
    return std::any_of(all.begin(), all.end(), [&](const ProcessInfo& one) {
      return one.pid == started.pid() && one.name == "sleep";
    });
  };
  while (!sleeps()) REQUIRE(started.runs());
  CHECK(process_variable(started.pid(), "PATH").empty());
  kill(started.pid(), SIGKILL);
  siginfo_t ended{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(started.pid()), &ended, WEXITED | WNOWAIT) == 0);
  CHECK(process_variable(started.pid(), "PATH").empty());
}

}  // namespace dynamiccl
