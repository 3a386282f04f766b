#include "orchestrator/replay.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace dynamiccl;

namespace {

using Words = std::vector<std::string>;

std::string told(const Words& then, const Words& now) {
  std::string text;
  for (const auto& difference : command_differences(then, now))
    text += difference.what + ": " + difference.a + " | " + difference.b + "\n";
  return text;
}

}  // namespace

TEST_CASE("a word that came or went does not make all behind it differ") {
  CHECK(told({"mpirun", "-n", "2", "worker"}, {"mpirun", "-n", "2", "worker"}).empty());
  CHECK(told({"a", "--bind", "/x", "worker", "run.json"}, {"a", "worker", "run.json"}) ==
        "from word 1: --bind /x | -\n");
  CHECK(told({"a", "worker"}, {"a", "-v", "worker"}) == "from word 1: - | -v\n");
  CHECK(told({"a", "/old/worker", "run.json"}, {"a", "/new/worker", "run.json"}) ==
        "from word 1: /old/worker | /new/worker\n");
  CHECK(told({"a", "b"}, {}) == "from word 0: a b | -\n");
}
