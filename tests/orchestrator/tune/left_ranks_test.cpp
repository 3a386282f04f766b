#include "orchestrator/tune/job/left_ranks.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>

#include "tests/containers/support.hpp"

using namespace dynamiccl;

namespace {

/// A process that has a file in its memory until it is ended.
pid_t start_mapping(const std::string& path) {
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGTERM, SIG_DFL);  // not Catch2's
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const bool mapped = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0) != MAP_FAILED;
    if (write(ready[1], mapped ? "y" : "n", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char said = 0;
  CHECK(read(ready[0], &said, 1) == 1);
  CHECK(said == 'y');
  close(ready[0]);
  close(ready[1]);
  return child;
}

}  // namespace

TEST_CASE("who merely maps a file of a launch's folder is none of its ranks", "[safety]") {
  const TempFolder folder;
  const std::string region = folder.path() + "/comm-1.region";
  std::ofstream(region) << std::string(4096, 'x');
  const pid_t child = start_mapping(region);
  struct stat space {};
  REQUIRE(stat("/proc/self/ns/pid", &space) == 0);
  const auto tell = [&](pid_t pid, std::uint64_t pid_namespace) {
    std::ofstream(folder.path() + "/rank-0000000000000001-0.json") << fmt::format(
        R"({{"rank":0,"process":{{"pid":{}}},"namespaces":{{"pid":{}}}}})", pid, pid_namespace);
  };
  const auto ended = [&] { return end_ranks_of(folder.path(), folder.path()); };
  CHECK(ended().empty());
  tell(child + 1, space.st_ino);
  CHECK(ended().empty());
  tell(child, space.st_ino + 1);
  CHECK(ended().empty());
  CHECK(kill(child, 0) == 0);
  tell(child, space.st_ino);
  const auto names = ended();
  REQUIRE(names.size() == 1);
  CHECK(names.front().find(fmt::format("({})", child)) != std::string::npos);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
}
