#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "containers/processes.hpp"
#include "tests/e2e/program.hpp"

namespace dynamiccl {

/// The job under a name that no other test's ranks have.
class OwnJob {
 public:
  OwnJob()
      : path_(std::filesystem::temp_directory_path() / ("socket-job-" + std::to_string(getpid()))) {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
    std::filesystem::create_symlink(DYNAMICCL_SOCKET_JOB, path_);
  }
  ~OwnJob() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  OwnJob(const OwnJob&) = delete;
  OwnJob& operator=(const OwnJob&) = delete;
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};
inline const OwnJob kOwnJob;
inline const std::string kJob = kOwnJob.path();

/// Ranks that may use the network alone, as between containers.
struct OverNetwork {
  OverNetwork() {
    setenv("NCCL_P2P_DISABLE", "1", 1);
    setenv("NCCL_SHM_DISABLE", "1", 1);
  }
  ~OverNetwork() {
    unsetenv("NCCL_P2P_DISABLE");
    unsetenv("NCCL_SHM_DISABLE");
  }
};

/// And that of sockets alone.
struct OverSockets : OverNetwork {
  OverSockets() { setenv("NCCL_NET", "Socket", 1); }
  ~OverSockets() { unsetenv("NCCL_NET"); }
};

inline std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Neither the program nor the job: zombies of killed launchers have no command line.
inline bool nothing_left(const Program& program) {
  for (const auto& process : list_processes())
    if (!process.argv.empty() && process.argv.front() == kJob) return false;
  return program.processes().empty();
}

inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace dynamiccl
