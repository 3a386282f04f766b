#include "containers/program_start.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/program_signals.hpp"

namespace dynamiccl {
namespace {

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!added.contains(text.substr(0, text.find('=')))) merged.push_back(text);
  }
  for (const auto& [name, value] : added) merged.push_back(fmt::format("{}={}", name, value));
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Pipe::Pipe() {
  if (pipe2(ends_.data(), O_CLOEXEC) != 0)
    throw Error(ErrorKind::environment,
                fmt::format("cannot make a pipe: {}", std::strerror(errno)));
}
Pipe::~Pipe() {
  close_end(0);
  close_end(1);
}
void Pipe::close_end(int which) {
  if (const int end = release(which); end >= 0) close(end);
}
int Pipe::release(int which) {
  return std::exchange(ends_.at(static_cast<std::size_t>(which)), -1);
}

ProgramStart::ProgramStart() {
  posix_spawn_file_actions_init(&actions_);
  posix_spawnattr_init(&attributes_);
  sigset_t none;
  sigemptyset(&none);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : kChildDefaults) sigaddset(&defaults, signal);
  posix_spawnattr_setsigmask(&attributes_, &none);
  posix_spawnattr_setsigdefault(&attributes_, &defaults);
  posix_spawnattr_setpgroup(&attributes_, 0);
  posix_spawnattr_setflags(&attributes_,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}
ProgramStart::~ProgramStart() {
  posix_spawn_file_actions_destroy(&actions_);
  posix_spawnattr_destroy(&attributes_);
}

void ProgramStart::open(int number, const std::string& path, int flags, unsigned mode) {
  posix_spawn_file_actions_addopen(&actions_, number, path.c_str(), flags, mode);
}
void ProgramStart::duplicate(int from, int number) {
  posix_spawn_file_actions_adddup2(&actions_, from, number);
}

pid_t ProgramStart::run(const std::vector<std::string>& argv,
                        const std::map<std::string, std::string>& added) {
  DYN_ASSERT(!argv.empty(), "a command needs a program");
  std::vector<std::string> arguments = argv;
  std::vector<std::string> environment = merged_environment(added);
  pid_t child = -1;
  const int code = posix_spawnp(&child, argv.front().c_str(), &actions_, &attributes_,
                                pointers(arguments).data(), pointers(environment).data());
  if (code != 0)
    throw Error(ErrorKind::environment,
                fmt::format("cannot start {}: {}", argv.front(), std::strerror(code)));
  return child;
}

}  // namespace dynamiccl
