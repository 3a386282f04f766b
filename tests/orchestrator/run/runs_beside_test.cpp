#include "orchestrator/run/runs_beside.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "containers/processes.hpp"
#include "tests/containers/support.hpp"

using namespace dynamiccl;
namespace fs = std::filesystem;

namespace {

/// A process of a program `dynamiccl` in the folder, started by that name or a link's: a shell in
/// truth, whose script is a file named by the verb.
class Other {
 public:
  Other(const TempFolder& folder, const std::string& name, std::string verb)
      : program_(folder.path() + "/" + name), verb_(std::move(verb)) {
    const fs::path path = folder.path();
    if (!fs::exists(path / "dynamiccl")) fs::copy_file("/bin/sh", path / "dynamiccl");
    std::ofstream(path / verb_) << "i=0; while [ $i -lt 600 ]; do sleep 1; i=$((i + 1)); done\n";
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      char* argv[] = {program_.data(), verb_.data(), nullptr};
      if (chdir(path.c_str()) == 0) execv(program_.c_str(), argv);
      _exit(127);
    }
  }
  ~Other() {
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }
  void wait_until_it_runs() const {
    const std::string folder = "/proc/" + std::to_string(pid_);
    for (std::string line; line.find(program_) == std::string::npos;) {
      REQUIRE(waitpid(pid_, nullptr, WNOHANG) == 0);
      std::ifstream file(folder + "/cmdline");
      std::getline(file, line);
    }
  }

 private:
  std::string program_;
  std::string verb_;
  pid_t pid_ = 0;
};

}  // namespace

TEST_CASE("a run beside this one is seen by whatever name it was started, other verbs are none") {
  const TempFolder folder;
  fs::create_symlink("dynamiccl", folder.path() + "/ccl");
  const Other run(folder, "ccl", "run");
  run.wait_until_it_runs();
  const Other list(folder, "dynamiccl", "list");
  list.wait_until_it_runs();
  const auto seen = runs_beside();
  CHECK(seen.contains(run.pid()));
  CHECK_FALSE(seen.contains(list.pid()));
}

TEST_CASE("a run whose program has been replaced since it began is seen") {
  const TempFolder folder;
  const Other run(folder, "dynamiccl", "run");
  run.wait_until_it_runs();
  fs::remove(folder.path() + "/dynamiccl");
  CHECK(runs_beside().contains(run.pid()));
}
