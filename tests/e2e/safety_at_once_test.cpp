// Runs of one machine at the same time.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/vocabulary/text.hpp"
#include "tests/containers/real_support.hpp"
#include "tests/containers/support.hpp"
#include "tests/e2e/program.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

std::string experiment(const std::string& environments, const std::string& backend) {
  return one_cell(environments, backend) +
         "[protocol]\nwarmup = 0\niterations = 100000\ncell_time_cap = \"300ms\"\nlaunches = 3\n"
         "retries = 0\n";
}

std::string log_of(const Program& program) {
  std::ifstream file(program.folder() + "/program.log");
  return {std::istreambuf_iterator<char>(file), {}};
}

void check_whole(const Program& program, int launches) {
  INFO(log_of(program));
  CHECK(program.value("SELECT group_concat(status) FROM run") == "complete");
  CHECK(program.value(kOkLaunches) == launches);
  CHECK(program.value("SELECT count(*) FROM launch") == launches);
  CHECK(program.processes().empty());
}

}  // namespace

TEST_CASE("runs with databases of their own do not meet, and say that they shared cores",
          "[safety]") {
  Program one;
  Program other;
  // Neither measures before the other is there.
  one.hold_launches(0);
  other.hold_launches(0);
  const pid_t first =
      one.start({"run", one.file("x.toml", experiment("\"bare-metal\"", "openmpi"))});
  const pid_t second =
      other.start({"run", other.file("x.toml", experiment("\"bare-metal\"", "gloo"))});
  CHECK(one.wait_until(kRunning, 1));
  CHECK(other.wait_until(kRunning, 1));
  one.let_go();
  other.let_go();
  CHECK(Program::wait(first) == 0);
  CHECK(Program::wait(second) == 0);
  check_whole(one, 3);
  check_whole(other, 3);
  CHECK_THAT(log_of(one) + log_of(other), ContainsSubstring("another run measures on the same"));
  const auto flagged = [](const Program& program) {
    return program
        .value(
            "SELECT count(*) FROM launch WHERE noise_flags_json LIKE '%another run measured on "
            "the same cores: process%'")
        .get<int>();
  };
  CHECK(flagged(one) + flagged(other) >= 2);
}

TEST_CASE("runs of one database at the same time keep their rows apart", "[safety]") {
  const Program program;
  const auto path = program.file("x.toml", experiment("\"bare-metal\"", "gloo"));
  const auto path_too = program.file("y.toml", experiment("\"bare-metal\"", "openmpi"));
  const pid_t first = program.start({"run", path});
  const pid_t second = program.start({"run", path_too});
  CHECK(Program::wait(first) == 0);
  CHECK(Program::wait(second) == 0);
  INFO(log_of(program));
  CHECK(program.value("SELECT count(*) FROM run WHERE status = 'complete'") == 2);
  CHECK(program.value(kOkLaunches) == 6);
  CHECK(program.value("SELECT count(DISTINCT g.run_id) FROM launch l JOIN plan_group g ON g.id = "
                      "l.group_id WHERE l.status = 'ok'") == 2);
}
