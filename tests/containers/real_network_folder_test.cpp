// Ranks in containers of their own that reach each other through a shared folder alone: the
// plugin's network by its own interface, as NCCL calls it, without NCCL and GPUs.
#include <array>
#include <filesystem>
#include <future>

#include "real_support.hpp"
#include "support.hpp"

using namespace dynamiccl;

namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 2;

/// One rank of a storm of messages, every byte of which is checked.
CommandResult storm_rank(const Environment& environment, int rank, const std::string& folder,
                         const std::string& meeting) {
  const std::string build = DYNAMICCL_BINARY_DIR;
  return run_command(
      environment.wrap_rank(rank,
                            {"timeout", "60", build + "/tests/net_storm", "--library",
                             build + "/libdynamiccl-nccl-plugin.so", "--folder", folder, "--ranks",
                             std::to_string(kRanks), "--messages", "200", "--rounds", "3",
                             "--as-rank", std::to_string(rank), "--meeting", meeting, "--verbose"},
                            // Else ranks without a common folder would meet by TCP.
                            {{"DYNAMICCL_TRANSPORT_TCP", "0"}}));
}

void check_folder_between(const std::string& profile) {
  INFO(profile);
  const TempFolder shared;
  const std::string folder = shared.path() + "/folder";
  const std::string meeting = shared.path() + "/meeting";
  for (const auto& path : {folder, meeting}) {
    fs::create_directory(path);
    fs::permissions(path, fs::perms::owner_all);
  }
  for (int rank = 0; rank < kRanks; ++rank)
    REQUIRE(
        run_command({"mkfifo", meeting + "/rank" + std::to_string(rank) + ".handles"}).exit_code ==
        0);
  const auto environment =
      started(shipped(profile),
              {test_run("folder"), kRanks, {shared.path(), std::string(DYNAMICCL_BINARY_DIR)}});
  // NCCL takes ranks with other host names for other hosts.
  CHECK(output_in(*environment, 0, {"hostname"}) != output_in(*environment, 1, {"hostname"}));
  auto other =
      std::async(std::launch::async, [&] { return storm_rank(*environment, 1, folder, meeting); });
  const std::array results{storm_rank(*environment, 0, folder, meeting), other.get()};
  for (const auto& result : results) {
    INFO(result.out << "\n" << result.err);
    CHECK(result.exit_code == 0);
    CHECK(result.out.starts_with("+"));
    // All that a connection carried went through rings in memory.
    CHECK(result.err.find("\"tcp_bytes\": 0,") != std::string::npos);
    CHECK(result.err.find("\"ring_bytes\": 0,") == std::string::npos);
  }
  CHECK(fs::is_empty(folder));
  environment->stop();
}

}  // namespace

TEST_CASE("Docker containers with every namespace apart reach each other through a folder") {
  check_folder_between("cross-docker-folder");
}

TEST_CASE("Apptainer containers with namespaces of their own reach each other through a folder") {
  check_folder_between("singularity-apart-folder");
}
