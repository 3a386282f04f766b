#include "containers/processes.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <string>

#include "containers/command.hpp"
#include "containers/local_ranks.hpp"
#include "containers/private_engine.hpp"
#include "containers/running_environment.hpp"
#include "support.hpp"

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

/// Each of its programs starts the next in its own place.
const char* const kChanges = "i=$((${i:-0}+1)); export i; exec /bin/sh -c \"$0\" \"$0\"";

std::size_t count_of(const std::string& variable, const std::string& value) {
  const auto all = list_processes();
  return static_cast<std::size_t>(std::count_if(
      all.begin(), all.end(),
      [&](const ProcessInfo& one) { return process_variable(one.pid, variable) == value; }));
}

int end_marked_ranks(const std::string& name) {
  const std::string script =
      std::string(DYNAMICCL_SOURCE_DIR) + "/containers/scripts/end_marked_ranks.sh";
  return run_command({"/bin/sh", script, name}).exit_code;
}

/// An environment whose ranks are ended by a command that never ends.
class Stuck : public Environment {
 public:
  explicit Stuck(const StartRequest& request) : Environment(request) {
    EnvironmentPlan plan;
    plan.kill_command = {"sleep", "600"};
    plan.kill_timeout = std::chrono::seconds(1);
    use_plan(plan);
  }
  [[nodiscard]] nlohmann::json provenance() const override { return {}; }
  void stop() override { remove_folder(); }
};

}  // namespace

TEST_CASE("ending ranks waits no longer than the plan's timeout, for no command on this machine") {
  const auto began = std::chrono::steady_clock::now();
  StartRequest request;
  request.run_id = "test-stuck-" + std::to_string(getpid());
  Stuck(request).end_ranks();
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(300));
  // A script there would start two programs for each process of the machine, which takes a busy one
  // a minute.
  const auto local = plan_local_ranks(request, "dyn-local", "/run/dyn-local", "", {});
  CHECK(local.kill_command.empty());
  CHECK(local.scripts.empty());
}

TEST_CASE("ranks of this machine are ended by their mark, and what holds a container stays") {
  const std::string name = "dyn-test-holder-" + std::to_string(getpid());
  std::string variable = "DYNAMICCL_ENVIRONMENT=" + name;
  std::string program = "sleep";
  std::string seconds = "600";
  std::string always = "infinity";
  char* rank_argv[] = {program.data(), seconds.data(), nullptr};
  char* holder_argv[] = {program.data(), always.data(), nullptr};
  char* environment[] = {variable.data(), nullptr};
  const Started rank("/bin/sleep", rank_argv, environment);
  const Started holder("/bin/sleep", holder_argv, environment);
  while (count_of("DYNAMICCL_ENVIRONMENT", name) < 2) REQUIRE((rank.runs() && holder.runs()));
  end_local_ranks(name);
  for (int wait = 0; wait < 1000 && rank.runs(); ++wait) usleep(10000);
  CHECK_FALSE(rank.runs());
  CHECK(holder.runs());
}

TEST_CASE("a process that changes its program is never without its variables") {
  std::string script = kChanges;
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
  // One look in eight, were it not looked at again; one that the kernel holds at that very point
  // for all looks is nobody's to see.
  CHECK(missed <= 3);
}

TEST_CASE("a process that changes its program is never without its arguments") {
  std::string script =
      "i=$((${i:-0}+1)); export i; exec /bin/sh -c \"$0\" \"$0\" dynamiccl-test-word";
  std::string word = "dynamiccl-test-word";
  char* argv[] = {sh.data(), option.data(), script.data(), script.data(), word.data(), nullptr};
  char* environment[] = {nullptr};
  const Started started("/bin/sh", argv, environment);
  while (process_variable(started.pid(), "i").empty()) REQUIRE(started.runs());
  int missed = 0;
  for (int look = 0; look < 200; ++look) {
    const auto all = list_processes();
    if (std::none_of(all.begin(), all.end(), [&](const ProcessInfo& one) {
          return one.pid == started.pid() && !one.argv.empty() && one.argv.back() == word;
        }))
      ++missed;
  }
  CHECK(started.runs());
  CHECK(missed <= 3);
}

TEST_CASE("a rank that changes its program all the time is ended on its node") {
  std::string script = kChanges;
  for (int i = 0; i < 20; ++i) {
    const std::string name =
        "dyn-test-changes-" + std::to_string(getpid()) + "-" + std::to_string(i);
    std::string variable = "DYNAMICCL_ENVIRONMENT=" + name;
    char* argv[] = {sh.data(), option.data(), script.data(), script.data(), nullptr};
    char* environment[] = {variable.data(), nullptr};
    const Started started("/bin/sh", argv, environment);
    while (process_variable(started.pid(), "i").empty()) REQUIRE(started.runs());
    CHECK(end_marked_ranks(name) == 0);
    // Between its last instruction and its end the kernel shows it to nobody.
    CHECK(process_variable(started.pid(), "DYNAMICCL_ENVIRONMENT").empty());
    for (int wait = 0; wait < 1000 && started.runs(); ++wait) usleep(10000);
    CHECK_FALSE(started.runs());
  }
}

TEST_CASE("ranks that a launcher starts while they are ended are ended as well") {
  std::string script = "while [ \"${i:=0}\" -lt 400 ]; do sleep 600 & i=$((i+1)); done; wait";
  const std::string name = "dyn-test-starts-" + std::to_string(getpid());
  std::string variable = "DYNAMICCL_ENVIRONMENT=" + name;
  std::string path = "PATH=/usr/bin:/bin";
  char* argv[] = {sh.data(), option.data(), script.data(), nullptr};
  char* environment[] = {variable.data(), path.data(), nullptr};
  const Started started("/bin/sh", argv, environment);
  while (count_of("DYNAMICCL_ENVIRONMENT", name) < 5) REQUIRE(started.runs());
  CHECK(end_marked_ranks(name) == 0);
  CHECK(count_of("DYNAMICCL_ENVIRONMENT", name) == 0);
  end_marked_processes(name);
}

TEST_CASE("a variable whose value names an environment in a line of its own is no mark") {
  const std::string name = "dyn-test-lines-" + std::to_string(getpid());
  std::string variable = "TEXT=one\nDYNAMICCL_ENVIRONMENT=" + name + "\nthree";
  std::string program = "/bin/sleep";
  std::string seconds = "600";
  char* argv[] = {program.data(), seconds.data(), nullptr};
  char* environment[] = {variable.data(), nullptr};
  const Started started("/bin/sleep", argv, environment);
  while (process_variable(started.pid(), "TEXT").empty()) REQUIRE(started.runs());
  CHECK(end_marked_ranks(name) == 0);
  CHECK(started.runs());
}

TEST_CASE("a process that was given no variables, or has ended, shows none") {
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

TEST_CASE("what is about to become an engine counts as one, who only speaks of it does not") {
  const TempFolder folder;
  std::string script = "while :; do sleep 1; done";
  std::string engine = "dockerd";
  std::string where = "--data-root";
  std::string data = folder.path() + "/docker/data";
  std::string path = "PATH=/usr/bin:/bin";
  char* environment[] = {path.data(), nullptr};
  const auto has_argument = [&](const Started& one) {
    const auto all = list_processes();
    return std::any_of(all.begin(), all.end(), [&](const ProcessInfo& process) {
      return process.pid == one.pid() && !process.argv.empty() && process.argv.back() == data;
    });
  };
  const PrivateEngineOptions options{folder.path() + "/docker", {}};
  {
    char* argv[] = {sh.data(), option.data(), script.data(), engine.data(), data.data(), nullptr};
    const Started speaks("/bin/sh", argv, environment);
    while (!has_argument(speaks)) REQUIRE(speaks.runs());
    CHECK_FALSE(engine_running(options));
  }
  char* argv[] = {sh.data(),    option.data(), script.data(), engine.data(),
                  where.data(), data.data(),   nullptr};
  const Started starts("/bin/sh", argv, environment);
  while (!has_argument(starts)) REQUIRE(starts.runs());
  CHECK(engine_running(options));
}

}  // namespace dynamiccl
