// Main of the multi-rank tests: started by an MPI launcher, or, for a backend that has none, with
// "--ranks N" as the first arguments, starting the ranks itself. Only rank 0 prints, unless a rank
// fails.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_session.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/workers/world.hpp"
#include "workers/run/backend_table.hpp"

namespace {

std::unique_ptr<dynamiccl::Communicator> g_world;

/// @returns this process's rank in the children; in the parent the worst exit code, negated - 1
int fork_ranks(int ranks) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      setenv("DYNAMICCL_RANK", std::to_string(rank).c_str(), 1);
      return rank;
    }
    children.push_back(child);
  }
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return -worst - 1;
}

int run_tests(int argc, char** argv) {
  Catch::Session session;
  if (const int code = session.applyCommandLine(argc, argv); code != 0) return code;
  const int rank = g_world->rank();
  if (rank != 0) session.configData().defaultOutputFilename = "%debug";
  const int failed = session.run();
  std::fflush(stdout);
  g_world->finalize();
  if (failed != 0) std::fprintf(stderr, "rank %d: checks failed\n", rank);
  return failed == 0 ? 0 : 1;
}

}  // namespace

namespace dynamiccl::testing {

Communicator& world() { return *g_world; }
Backend world_backend() { return backend_table().front().backend; }

}  // namespace dynamiccl::testing

int main(int argc, char** argv) {
  dynamiccl::RunConfig config;
  if (argc > 2 && std::string(argv[1]) == "--ranks") {
    config.ranks = std::atoi(argv[2]);
    std::string folder = (std::filesystem::temp_directory_path() / "world-XXXXXX").string();
    config.rendezvous_dir = mkdtemp(folder.data());
    config.launch_id = "test";
    const int code = fork_ranks(config.ranks);
    if (code < 0) {
      std::filesystem::remove_all(config.rendezvous_dir);
      return -code - 1;
    }
    argv[2] = argv[0];
    argv += 2;
    argc -= 2;
  }
  g_world = dynamiccl::backend_table().front().connect(config);
  const int code = run_tests(argc, argv);
  g_world.reset();
  return code;
}
