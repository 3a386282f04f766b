#pragma once

#include <SQLiteCpp/SQLiteCpp.h>
#include <catch2/catch_test_macros.hpp>
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

/// A command line of a shell, its exit code that of the first command of a pipe.
inline CommandResult shell(const std::string& line) {
  return run_command({"/bin/bash", "-c", "set -o pipefail; " + line});
}

/// A database with the table of a file whose content is given, and one run.
inline std::string database_with(const Folder& folder, const std::string& text,
                                 const std::string& name = "run") {
  const auto db = folder.path("x.sqlite");
  const auto imported = run({"import", folder.file("t.txt", text), "--ranks", "2", "--name", name,
                             "--operation", "all_reduce", "--db", db});
  INFO(imported.err);
  REQUIRE(imported.exit_code == 0);
  return db;
}

inline const std::string kSmallOsuTable =
    "# OSU MPI Allreduce Latency Test v5.8\n# Size       Avg Latency(us)\n4   1.00\n8   1.10\n";

inline void execute(const std::string& db, const std::string& sql) {
  SQLite::Database(db, SQLite::OPEN_READWRITE).exec(sql);
}

}  // namespace dynamiccl::testing
