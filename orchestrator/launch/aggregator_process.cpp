#include "orchestrator/launch/aggregator_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/launch/record_server.hpp"

namespace dynamiccl {
namespace {

std::string random_key() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

/// What it says first: its port, or nothing where it did not come up.
std::string first_line(int file) {
  std::string line;
  char byte = 0;
  while (line.size() < 16 && ::read(file, &byte, 1) == 1 && byte != '\n') line += byte;
  return line;
}

}  // namespace

AggregatorProcess::AggregatorProcess(const std::string& folder, int ranks) {
  const std::string program = folder + "/dynamiccl-aggregator";
  const std::string key = random_key();
  std::string count = std::to_string(ranks);
  char* argv[] = {const_cast<char*>(program.c_str()), count.data(), const_cast<char*>(key.c_str()),
                  nullptr};
  char* environment[] = {nullptr};
  int input[2];
  int output[2];
  if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0)
    throw Error(ErrorKind::environment, fmt::format("no pipe: {}", std::strerror(errno)));
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, output[1], STDOUT_FILENO);
  const int problem = posix_spawn(&pid_, program.c_str(), &files, nullptr, argv, environment);
  posix_spawn_file_actions_destroy(&files);
  ::close(input[0]);
  ::close(output[1]);
  held_ = input[1];
  const std::string port = problem == 0 ? first_line(output[0]) : "";
  ::close(output[0]);
  place_ = fmt::format("{}:{}/{}", join(own_addresses(), ","), port, key);
  if (!port.empty()) return;
  ::close(held_);
  if (problem == 0) waitpid(pid_, nullptr, 0);
  throw Error(ErrorKind::environment,
              fmt::format("{} did not start{}: build it, or measure without the algorithm "
                          "\"aggregator\"",
                          program, problem == 0 ? "" : std::string(": ") + std::strerror(problem)));
}

AggregatorProcess::~AggregatorProcess() {
  ::close(held_);
  waitpid(pid_, nullptr, 0);
}

}  // namespace dynamiccl
