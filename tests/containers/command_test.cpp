#include "containers/command.hpp"

#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <filesystem>

#include "core/vocabulary/error.hpp"
#include "support.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Far beyond what a busy machine takes to end commands, far below what these would take by
/// themselves.
constexpr std::chrono::seconds kEnd{300};

}  // namespace

TEST_CASE("a command's streams and exit code come back apart") {
  const CommandResult result = run_command({"sh", "-c", "echo out; echo err >&2; exit 7"});
  CHECK(result.out == "out\n");
  CHECK(result.err == "err\n");
  CHECK(result.exit_code == 7);
  CHECK_FALSE(result.timed_out);
}

TEST_CASE("a command that is killed reports the signal as shells do") {
  CHECK(run_command({"sh", "-c", "kill -9 $$"}).exit_code == 128 + 9);
}

TEST_CASE("a command ignores no signal that this program does", "[safety]") {
  auto* const before = signal(SIGXFSZ, SIG_IGN);
  const auto result = run_command({"grep", "SigIgn", "/proc/self/status"});
  signal(SIGXFSZ, before);
  INFO(result.out);
  REQUIRE(result.out.starts_with("SigIgn:\t"));
  CHECK((std::stoull(result.out.substr(8), nullptr, 16) >> (SIGXFSZ - 1) & 1U) == 0);
}

TEST_CASE("a command past its timeout is killed with its children") {
  CommandOptions options;
  options.timeout = std::chrono::milliseconds(200);
  const auto start = std::chrono::steady_clock::now();
  const CommandResult result = run_command({"sh", "-c", "sleep 600 & sleep 600"}, options);
  CHECK(result.timed_out);
  CHECK(std::chrono::steady_clock::now() - start < kEnd);
}

TEST_CASE("an interrupted command may clean up, then its whole group is gone") {
  const TempFolder folder;
  static std::string begun;
  begun = folder.path() + "/begun";
  const std::string script = "trap 'echo cleaned >" + folder.path() +
                             "/note; exit 130' TERM; echo begun; : >" + begun +
                             "; sleep 600 & wait";
  CommandOptions options;
  const auto begin = std::chrono::steady_clock::now();
  options.interrupted = [] { return std::filesystem::exists(begun); };
  const CommandResult result = run_command({"sh", "-c", script}, options);
  CHECK(result.interrupted);
  CHECK_FALSE(result.timed_out);
  CHECK(result.exit_code == 130);
  CHECK(result.out == "begun\n");
  CHECK(std::chrono::steady_clock::now() - begin < kEnd);
  CHECK(std::filesystem::exists(folder.path() + "/note"));
  CHECK_THROWS_WITH(checked_output("cannot make it", {"sleep", "600"}, options),
                    ContainsSubstring("cannot make it: interrupted, `sleep 600` was ended"));
  // One that is not asked about goes on: cleaning up is not cut short.
  CHECK_FALSE(run_command({"true"}).interrupted);
}

TEST_CASE("a command that does not listen to an interrupt is killed") {
  const TempFolder folder;
  static std::string begun;
  begun = folder.path() + "/begun";
  CommandOptions options;
  const auto start = std::chrono::steady_clock::now();
  options.interrupted = [] { return std::filesystem::exists(begun); };
  const CommandResult result =
      run_command({"sh", "-c", "trap '' TERM; : >" + begun + "; sleep 600 & sleep 600"}, options);
  CHECK(result.interrupted);
  CHECK(result.exit_code == 128 + 9);
  CHECK(std::chrono::steady_clock::now() - start < kEnd);
}

TEST_CASE("output larger than a pipe's buffer does not block") {
  const CommandResult result =
      run_command({"sh", "-c", "head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2"});
  CHECK(result.out.size() == 1000000);
  CHECK(result.err.size() == 1000000);
}

TEST_CASE("variables are added to the environment and replace those of the same name") {
  CommandOptions options;
  options.environment = {{"DYN_TEST", "one two"}, {"HOME", "/nowhere"}};
  CHECK(run_command({"sh", "-c", "echo \"$DYN_TEST $HOME\""}, options).out == "one two /nowhere\n");
}

TEST_CASE("a failed command's error names it and the end of its stderr") {
  CHECK_THROWS_WITH(checked_output("cannot do it", {"sh", "-c", "echo 'the reason' >&2; exit 3"}),
                    ContainsSubstring("cannot do it") && ContainsSubstring("exit code 3") &&
                        ContainsSubstring("the reason"));
  CHECK_THROWS_AS(run_command({"/nowhere/program"}), Error);
}

TEST_CASE("a line for a node means the same to every login shell") {
  // Quotes in quotes, line ends, and what csh and fish read differently.
  const std::string line = "X='it''s' && printf '%s|' \"$X\" 'a\\\\n!b' '\n' \"\\\"\"; export X";
  const std::string expected = run_command({"/bin/sh", "-c", line}).out;
  REQUIRE(expected.find("|a\\") != std::string::npos);
  const std::string sent = login_shell_line(line);
  const auto quoted = sent.substr(sent.rfind(" '") + 2);
  CHECK(quoted.find_first_of("\n!\"$`") == std::string::npos);
  CHECK(quoted.find('\'') == quoted.size() - 1);
  CHECK(quoted.find("\\\\") == std::string::npos);
  for (const char* shell : {"sh", "bash", "dash", "csh", "tcsh", "fish", "zsh", "ksh"}) {
    if (find_program(shell).empty()) continue;
    INFO(shell);
    const CommandResult done = run_command({shell, "-c", sent});
    CHECK(done.err == "");
    CHECK(done.out == expected);
  }
}

TEST_CASE("a command line can be pasted into a shell") {
  CHECK(command_line({"docker", "exec", "a b"}) == "docker exec 'a b'");
}
