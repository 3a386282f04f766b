#pragma once
#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace dynamiccl::onehost {

using Variables = std::map<std::string, std::string>;

/// A tmpfs folder that containers share; removed with its files at the end.
class SharedFolder {
 public:
  SharedFolder();
  ~SharedFolder();
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Names in it, in order.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  std::filesystem::path path_;
};

struct Container {
  std::filesystem::path folder{};  ///< seen as /mnt; empty: it has none
  std::vector<int> gpus{0};        ///< whose device nodes it has
  std::string version = "2.28.9";  ///< of NCCL
  Variables variables{};           ///< beside DYNAMICCL_SHARED_FOLDER=/mnt and LD_PRELOAD
  std::string setup{};             ///< shell lines within it before the rank starts
  std::string prefix{};            ///< a command that starts it
  bool preload = true;
};

/// A rank in mount, PID, network, IPC and UTS namespaces of its own.
class Rank {
 public:
  explicit Rank(const Container& container);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  /// One command of rank.c. @return its answer; "gone" where the rank has ended
  std::string ask(const std::string& command);
  /// Ends it by its own command ("exit", "_exit"), and waits.
  void end(const std::string& command = "exit");
  /// By signal 9, as the kernel does it for want of memory.
  void kill();
  /// What it wrote to standard error; after its end.
  [[nodiscard]] std::string said() const;

 private:
  void wait();
  pid_t process_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::filesystem::path error_;
};

/// Output of a shell command, standard error too.
std::string output_of(const std::string& command);
/// Skips the test, with its reason, where namespaces are not allowed.
void need_namespaces();

}  // namespace dynamiccl::onehost
