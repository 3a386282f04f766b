#include "workers/measure/core_wait.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

using namespace dynamiccl;

namespace {

struct TaskFolder {
  std::filesystem::path path;
  TaskFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "waits-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~TaskFolder() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::string file(const std::string& name) const { return path / name; }
};

void write(const std::string& tasks, const std::string& thread, const std::string& text) {
  std::filesystem::create_directories(tasks + "/" + thread);
  std::ofstream(tasks + "/" + thread + "/schedstat") << text;
}

}  // namespace

TEST_CASE("a rank's wait for a core is that of all its threads, and never shrinks") {
  const TaskFolder folder;
  const std::string tasks = folder.file("task");
  write(tasks, "10", "5000 2000000 7\n");
  write(tasks, "11", "5000 500000 7\n");
  CoreWait wait(tasks);
  CHECK(wait.known());
  CHECK(wait.read_us() == 2500);

  write(tasks, "10", "5000 2600000 8\n");
  // Between two readings nobody may come in with what it waited before.
  write(tasks, "12", "5000 9000000 1\n");
  std::vector<double> waited_us;
  wait.add_since(2500, 3, waited_us);
  CHECK(waited_us == std::vector{200.0});
  wait.find_threads();
  CHECK(wait.read_us() == 12100);

  // An ended thread's file has no line any more.
  write(tasks, "10", "");
  CHECK(wait.read_us() == 12100);
  write(tasks, "10", "damaged");
  CHECK(wait.read_us() == 12100);
}

TEST_CASE("a kernel that does not tell what threads waited leaves it unknown") {
  const TaskFolder folder;
  std::filesystem::create_directories(folder.file("task/10"));
  for (const auto& tasks : {folder.file("task"), folder.file("none")}) {
    CoreWait wait(tasks);
    CHECK_FALSE(wait.known());
    std::vector<double> waited_us;
    wait.add_since(0, 1, waited_us);
    CHECK(waited_us.empty());
  }
}
