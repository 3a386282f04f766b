#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <string>

namespace dynamiccl::testing {

/// Runs `work` in a process of its own, as the plugin reads the environment once per process.
/// `work` returns what it found; @returns that, or how it ended.
template <typename Work>
std::string in_child(Work&& work) {
  int ends[2] = {};
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    std::string text;
    try {
      text = work();
    } catch (const std::exception& error) {
      text = error.what();
    }
    const ssize_t size = write(ends[1], text.data(), text.size());
    _exit(size < 0 ? 1 : 0);
  }
  close(ends[1]);
  std::string text;
  char part[512];
  for (ssize_t size = 0; (size = read(ends[0], part, sizeof part)) > 0;)
    text.append(part, static_cast<std::size_t>(size));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) text = "signal " + std::to_string(WTERMSIG(status));
  return text;
}

/// Whether a process may be made of that user: as root, where the user exists to this container.
inline bool can_become(uid_t user) {
  return in_child([user] { return setresuid(user, user, user) == 0 ? "yes" : "no"; }) == "yes";
}

/// A folder of this test's own, gone at its end.
class TestFolder {
 public:
  TestFolder() {
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    if (!path_.empty() && std::system(("rm -rf " + path_).c_str()) != 0) path_.clear();
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/dynamiccl-transport-XXXXXX";
};

inline std::string plugin_library() {
  return std::string(DYNAMICCL_BINARY_DIR) + "/libdynamiccl-nccl-plugin.so";
}

}  // namespace dynamiccl::testing
