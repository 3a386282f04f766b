#pragma once

#include <spawn.h>
#include <sys/types.h>

#include <array>
#include <map>
#include <string>
#include <vector>

namespace dynamiccl {

/// A pipe whose ends no program inherits by accident.
class Pipe {
 public:
  /// @throws Error(environment)
  Pipe();
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  [[nodiscard]] int read_end() const { return ends_[0]; }
  [[nodiscard]] int write_end() const { return ends_[1]; }
  void close_end(int which);
  /// @returns the end, which from now on is the caller's to close
  int release(int which);

 private:
  std::array<int, 2> ends_{-1, -1};
};

/// How commands and held commands are started: in a process group of their own, which a Ctrl-C at
/// the terminal does not reach, and with signals as a shell would have them.
class ProgramStart {
 public:
  ProgramStart();
  ~ProgramStart();
  ProgramStart(const ProgramStart&) = delete;
  ProgramStart& operator=(const ProgramStart&) = delete;

  void open(int number, const std::string& path, int flags, unsigned mode = 0);
  void duplicate(int from, int number);
  /// @param added to this process's environment
  /// @throws Error(environment) when the program cannot be started
  pid_t run(const std::vector<std::string>& argv, const std::map<std::string, std::string>& added);

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

}  // namespace dynamiccl
