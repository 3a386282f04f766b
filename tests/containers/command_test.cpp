#include "containers/command.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/error.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

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

TEST_CASE("a command past its timeout is killed with its children") {
  CommandOptions options;
  options.timeout = std::chrono::milliseconds(200);
  const auto start = std::chrono::steady_clock::now();
  const CommandResult result = run_command({"sh", "-c", "sleep 60 & sleep 60"}, options);
  CHECK(result.timed_out);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
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

TEST_CASE("a command line can be pasted into a shell") {
  CHECK(command_line({"docker", "exec", "a b"}) == "docker exec 'a b'");
}
