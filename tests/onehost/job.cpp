#include "tests/onehost/job.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace dynamiccl::onehost {
namespace fs = std::filesystem;
namespace {

fs::path temporary(const fs::path& under) {
  std::string name = (under / "onehost-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error(name);
  return name;
}

/// As a container engine does it: own /dev with the nodes of its GPUs, own /dev/shm, the folder.
std::string script(const Container& container) {
  std::ostringstream text;
  text << "set -e; mount --make-rprivate /; ";
  if (!container.folder.empty()) text << "mount --bind " << container.folder.string() << " /mnt; ";
  text << "d=/srv; mount -t tmpfs tmpfs $d; for n in null zero full random urandom; do "
          "touch $d/$n; mount --bind /dev/$n $d/$n; done; mkdir $d/shm; ";
  for (const int gpu : container.gpus)
    text << "touch $d/nvidia" << gpu << "; chmod 666 $d/nvidia" << gpu << "; ";
  text << "mount --rbind $d /dev; mount -t tmpfs tmpfs /dev/shm; ip link set lo up 2>/dev/null || "
          "true; ";
  if (!container.setup.empty()) text << container.setup << "; ";
  text << "exec " << container.prefix << " env ";
  if (!container.folder.empty()) text << "DYNAMICCL_SHARED_FOLDER=/mnt ";
  for (const auto& [name, value] : container.variables) text << name << "='" << value << "' ";
  if (container.preload) text << "LD_PRELOAD=" ONEHOST_LIBRARY " ";
  text << "LD_LIBRARY_PATH=" ONEHOST_FOLDER " " ONEHOST_FOLDER "/onehost_rank_"
       << container.version;
  return text.str();
}

}  // namespace

SharedFolder::SharedFolder() : path_(temporary("/dev/shm")) {}
SharedFolder::~SharedFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}
std::vector<std::string> SharedFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

Rank::Rank(const Container& container) : error_(temporary("/tmp") / "error") {
  std::array<int, 2> to{};
  std::array<int, 2> from{};
  if (pipe2(to.data(), O_CLOEXEC) != 0 || pipe2(from.data(), O_CLOEXEC) != 0)
    throw std::runtime_error("pipe");
  const std::string text = script(container);
  const std::string error = error_.string();
  process_ = fork();
  if (process_ == 0) {
    dup2(to[0], 0);
    dup2(from[1], 1);
    dup2(open(error.c_str(), O_WRONLY | O_CREAT, 0600), 2);
    execlp("unshare", "unshare", "--mount", "--net", "--ipc", "--uts", "--pid", "--fork",
           "--kill-child", "--mount-proc", "sh", "-c", text.c_str(), nullptr);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  to_ = to[1];
  from_ = from[0];
}

Rank::~Rank() {
  if (process_ > 0) kill();
  std::error_code ignored;
  fs::remove_all(error_.parent_path(), ignored);
}

std::string Rank::ask(const std::string& command) {
  const std::string line = command + "\n";
  signal(SIGPIPE, SIG_IGN);
  if (write(to_, line.data(), line.size()) < 0) return "gone";
  std::string answer;
  for (char letter = 0; read(from_, &letter, 1) == 1;) {
    if (letter == '\n') return answer;
    answer += letter;
  }
  return "gone";
}

void Rank::wait() {
  std::array<char, 64> rest{};
  while (read(from_, rest.data(), rest.size()) > 0) {
  }
  close(from_);
  close(to_);  // not before: it would end by itself
  waitpid(process_, nullptr, 0);
  process_ = -1;
}
void Rank::end(const std::string& command) {
  const std::string line = command + "\n";
  if (write(to_, line.data(), line.size()) < 0) FAIL("the rank is gone");
  wait();
}
void Rank::kill() {
  // unshare gives its own end on to the first process of the PID namespace.
  ::kill(process_, SIGKILL);
  wait();
}

std::string Rank::said() const {
  std::ifstream file(error_);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(("{ " + command + " ; } 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> part{};
  for (std::size_t n = 0; (n = fread(part.data(), 1, part.size(), pipe)) > 0;)
    text.append(part.data(), n);
  pclose(pipe);
  return text;
}

void need_namespaces() {
  if (output_of(
          "unshare --mount --net --ipc --uts --pid --fork --mount-proc mount -t tmpfs tmpfs /mnt")
          .empty())
    return;
  SKIP("namespaces and mounts are not allowed here");
}

}  // namespace dynamiccl::onehost
