#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <map>

#include "containers/paths.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "tests/containers/real_support.hpp"
#include "tests/containers/temp_user.hpp"

using namespace dynamiccl;

namespace {

/// Runs the program as the user with a database in the user's home. @returns its exit code in the
/// first line, then stdout, then stderr where it failed
std::string run_as(const TempUser& user, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), DYNAMICCL_BINARY_DIR "/dynamiccl");
  arguments.insert(arguments.end(), {"--db", user.home() + "/e2e.sqlite"});
  return user.run([&] {
    CommandOptions options;
    options.timeout = std::chrono::minutes(5);
    const auto result = run_command(arguments, options);
    return fmt::format("{}\n{}{}", result.exit_code, result.out,
                       result.exit_code == 0 ? "" : result.err);
  });
}

}  // namespace

TEST_CASE("an ordinary user measures every CPU backend on bare metal and in Apptainer") {
  if (!is_root()) SKIP("needs root to make a user");
  if (find_program("useradd").empty()) SKIP("needs useradd: apt-get install passwd");
  const auto& userns = shipped("singularity-userns");
  need(userns);
  // Root makes the image, the user runs it.
  prepare(shipped("singularity"), {});
  const TempUser user;
  if (user.run([] {
        return std::string(access(DYNAMICCL_BINARY_DIR "/dynamiccl", X_OK) == 0 ? "" : "no");
      }) == "no")
    SKIP("other users may not read " DYNAMICCL_BINARY_DIR);

  const auto answer = run_as(user, {"run", DYNAMICCL_SOURCE_DIR "/experiments/smoke.toml", "--set",
                                    "axes.environment=[\"bare-metal\", \"singularity\"]", "--set",
                                    "axes.backend=[\"openmpi\", \"mpich\", \"gloo\"]", "--set",
                                    "protocol.launches=1", "--only", "size == 64KiB"});
  INFO(answer);
  REQUIRE(answer.starts_with("0\n"));
  const auto coverage = run_as(user, {"query", "coverage", "--json"});
  INFO(coverage);
  REQUIRE(coverage.starts_with("0\n"));
  std::map<std::string, int> cells;
  for (const auto& cell : nlohmann::json::parse(coverage.substr(2))) {
    CHECK(cell["status"] == "ok");
    ++cells[cell["environment"].get<std::string>() + " " + cell["backend"].get<std::string>()];
  }
  CHECK(cells.size() == 6);
  for (const auto& [what, count] : cells) {
    INFO(what);
    CHECK(count == 4);
  }
  // The user's Apptainer really makes a user namespace: the launches say so.
  const auto spaces =
      run_as(user, {"query",
                    "SELECT count(*) AS n FROM v_launch WHERE environment LIKE 'singularity%' AND "
                    "launch_status = 'ok' AND regime_name LIKE 'singularity%'",
                    "--json"});
  INFO(spaces);
  CHECK(nlohmann::json::parse(spaces.substr(2)).at(0).at("n") == 6);
}
