// Ranks as processes that send each other messages through the plugin as NCCL would.
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tests/tuner/transport/in_child.hpp"
#include "tests/tuner/transport/net_storm.hpp"
#include "tuner/transport/shared_folder.hpp"

using dynamiccl::testing::plugin_library;
using dynamiccl::testing::run_storm;
using dynamiccl::testing::StormOptions;
using dynamiccl::testing::StormResult;
using dynamiccl::testing::TestFolder;

namespace {

StormOptions storm_in(const TestFolder& folder) {
  StormOptions options;
  options.library = plugin_library();
  options.folder = folder.path();
  options.messages = 60;
  return options;
}
void set_threads(const char* count) { setenv("DYNAMICCL_TRANSPORT_THREADS", count, 1); }
bool fake_driver() {
  const char* path = std::getenv("LD_LIBRARY_PATH");
  return path != nullptr && std::strstr(path, "fake_cuda") != nullptr;
}
bool empty(const TestFolder& folder) { return std::filesystem::is_empty(folder.path()); }

}  // namespace

TEST_CASE("Every version of the interface carries messages of any size, right and in order") {
  const TestFolder folder;
  StormOptions options = storm_in(folder);
  for (const char* threads : {"0", "2"}) {
    set_threads(threads);
    for (const int version : {8, 9, 10, 11}) {
      options.version = version;
      const StormResult result = run_storm(options);
      INFO("version " << version << ", " << threads << " threads: " << result.problem);
      CHECK(result.ok);
    }
  }
  CHECK(empty(folder));
}

TEST_CASE("Rings of ranks connect and part again and again without leaks") {
  const TestFolder folder;
  StormOptions options = storm_in(folder);
  set_threads("2");
  options.ranks = 3;
  options.channels = 3;
  options.rounds = 4;
  options.messages = 20;
  const StormResult result = run_storm(options);
  INFO(result.problem);
  CHECK(result.ok);
  CHECK(empty(folder));
}

TEST_CASE("Ranks without a common folder meet by TCP") {
  const TestFolder folder;
  StormOptions options = storm_in(folder);
  set_threads("1");
  options.folders_apart = true;
  options.rounds = 2;
  const StormResult result = run_storm(options);
  INFO(result.problem);
  CHECK(result.ok);
}

TEST_CASE("A killed rank is an error for the others, though its children live on") {
  const TestFolder folder;
  StormOptions options = storm_in(folder);
  set_threads("1");
  options.messages = 1'000'000;
  options.fork_children = true;
  for (int i = 0; i < 6; ++i) {
    options.folders_apart = i >= 4;
    options.ranks = 2 + i % 2;
    options.seed = static_cast<std::uint64_t>(i);
    options.kill_rank = i % options.ranks;
    options.kill_ms = i * 23;
    const StormResult result = run_storm(options);
    INFO("kill " << i << ": " << result.problem);
    CHECK(result.ok);
    CHECK(result.errors == options.ranks - 1);
  }
}

TEST_CASE("Children that ranks fork at any moment neither end a connection nor keep it") {
  const TestFolder folder;
  StormOptions options = storm_in(folder);
  set_threads("2");
  options.fork_often = true;
  options.rounds = 4;
  for (const bool apart : {false, true}) {
    options.folders_apart = apart;
    const StormResult result = run_storm(options);
    INFO((apart ? "TCP: " : "folder: ") << result.problem);
    CHECK(result.ok);
  }
  options.rounds = 1;
  options.messages = 1'000'000;
  options.patience_s = 10;
  for (int i = 0; i < 4; ++i) {
    options.folders_apart = i == 3;
    options.kill_rank = i % 2;
    options.kill_ms = 20 + i * 40;
    const StormResult result = run_storm(options);
    INFO("kill " << i << ": " << result.problem);
    CHECK(result.ok);
    CHECK(result.errors == 1);
    CHECK(result.slowest_error_s < 10);
  }
}

TEST_CASE("Ranks that share no folder are all refused where TCP is turned off") {
  const TestFolder folder;
  StormOptions options = storm_in(folder);
  options.ranks = 3;
  options.folders_apart = true;
  setenv("DYNAMICCL_TRANSPORT_TCP", "0", 1);
  const StormResult result = run_storm(options);
  unsetenv("DYNAMICCL_TRANSPORT_TCP");
  CHECK_FALSE(result.ok);
  for (const char* rank : {"rank 0: connect", "rank 1: connect", "rank 2: connect"})
    CHECK_THAT(result.problem, Catch::Matchers::ContainsSubstring(rank));
  CHECK_THAT(result.problem,
             Catch::Matchers::ContainsSubstring("DYNAMICCL_TRANSPORT_TCP=0 forbids TCP"));
  // As after a kill: the next start, or `clean`, takes the socket files away.
  for (const char* rank : {"/0", "/1", "/2"}) {
    dynamiccl::transport::sweep_folder(folder.path() + rank, std::chrono::seconds(0));
    CHECK(std::filesystem::is_empty(folder.path() + rank));
  }
}

TEST_CASE("Memory that one rank lends another is copied into, and given back") {
  if (!fake_driver())
    SKIP("needs the stand-in for CUDA's driver in LD_LIBRARY_PATH, as ctest sets it");
  const TestFolder folder;
  StormOptions options = storm_in(folder);
  options.device = true;
  options.ranks = 3;
  options.rounds = 2;
  StormResult result = run_storm(options);
  INFO(result.problem);
  CHECK(result.ok);
  options.ranks = 2;
  options.rounds = 1;
  options.messages = 1'000'000;
  options.kill_rank = 1;
  options.kill_ms = 60;
  result = run_storm(options);
  INFO(result.problem);
  CHECK(result.ok);
  CHECK(result.errors == 1);
}

TEST_CASE("Memory of a GPU for a rank that shares no folder is refused when they connect") {
  if (!fake_driver())
    SKIP("needs the stand-in for CUDA's driver in LD_LIBRARY_PATH, as ctest sets it");
  const TestFolder folder;
  StormOptions options = storm_in(folder);
  options.device = true;
  options.folders_apart = true;
  const StormResult result = run_storm(options);
  CHECK_FALSE(result.ok);
  for (const char* rank : {"rank 0: connect", "rank 1: connect"})
    CHECK_THAT(result.problem, Catch::Matchers::ContainsSubstring(rank));
  CHECK_THAT(result.problem, Catch::Matchers::ContainsSubstring("not sent by TCP"));
}

TEST_CASE("A GPU that the peer cannot reach fails the connection, not the first message") {
  if (!fake_driver())
    SKIP("needs the stand-in for CUDA's driver in LD_LIBRARY_PATH, as ctest sets it");
  const TestFolder folder;
  StormOptions options = storm_in(folder);
  options.device = true;
  setenv("FAKE_CUDA_NO_ACCESS", "1", 1);
  const StormResult result = run_storm(options);
  unsetenv("FAKE_CUDA_NO_ACCESS");
  CHECK_FALSE(result.ok);
  CHECK(result.problem.find("device nodes") != std::string::npos);
}
