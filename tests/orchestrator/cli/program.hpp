#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "containers/command.hpp"
#include "orchestrator/launch/identity.hpp"

namespace dynamiccl::testing {

/// The built program; $DYNAMICCL_TEST_PROGRAM names another one, as to see a test fail with it.
inline const std::string kProgram = std::getenv("DYNAMICCL_TEST_PROGRAM") != nullptr
                                        ? std::getenv("DYNAMICCL_TEST_PROGRAM")
                                        : DYNAMICCL_BINARY_DIR "/dynamiccl";

/// An experiment of one cell that any machine can measure.
inline constexpr const char* kOneCell = R"(name = "e"
[axes]
environment = "bare-metal"
backend = "gloo"
architecture = "ring"
ranks = 2
[[work]]
architecture = "ring"
collective = "allreduce"
size = "1KiB"
[protocol]
launches = 1
)";

inline CommandResult run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), kProgram);
  return run_command(arguments);
}

/// A folder that goes away with the test.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / random_uuid()) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return (path_ / name).string();
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace dynamiccl::testing
