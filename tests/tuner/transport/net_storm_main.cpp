// Storms of messages through the network plugin, without NCCL and without GPUs; every byte is
// checked.
//   net_storm [--library FILE] [--folder DIR] [--version 8..11] [--ranks N] [--channels N]
//   [--messages N] [--most-bytes N]
//             [--bytes N] [--kills N] [--rounds N] [--fork] [--fork-often] [--tcp] [--device]
//             [--in-turn] [--seed N]
//             [--patience SECONDS] [--verbose] [--as-rank N --meeting DIR]
// --bytes: messages alike, whose time is shown; --kills: that many storms, in each of which one
// rank is killed at a random moment, and the others must be told within 10 s; --in-turn: a message
// is sent when the one before has come from the other side, as steps of an all-reduce are;
// --as-rank: one rank alone, whose handles go through the pipes "DIR/rankN.handles" (mkfifo), as in
// containers.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/tuner/transport/net_storm.hpp"
#include "tuner/transport/shared_folder.hpp"

namespace {

using dynamiccl::testing::run_storm;
using dynamiccl::testing::StormOptions;
using dynamiccl::testing::StormResult;

int left_files(const std::string& folder) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    count += entry.is_directory() ? 0 : 1;
  return count;
}

int kill_storms(StormOptions options, int kills) {
  double slowest = 0;
  int told = 0;
  int left = 0;
  for (int i = 0; i < kills; ++i) {
    options.seed = static_cast<std::uint64_t>(i) + 1;
    options.kill_rank = i % options.ranks;
    options.kill_ms = (i * 37) % 400;
    const StormResult result = run_storm(options);
    if (!result.ok) {
      std::printf("kill %d: %s\n", i, result.problem.c_str());
      return 1;
    }
    slowest = std::max(slowest, result.slowest_error_s);
    told += result.errors;
    left = std::max(left, left_files(options.folder));
  }
  const int swept = dynamiccl::transport::sweep_folder(options.folder, std::chrono::seconds(0));
  std::printf(
      "%d kills, %d survivors told, the slowest after %.2f s; at most %d files left, %d swept, %d "
      "there\n",
      kills, told, slowest, left, swept, left_files(options.folder));
  return slowest <= 10 && left_files(options.folder) == 0 ? 0 : 1;
}

/// What all ranks take together, stand-in GPU memory and rings in shared memory among it.
double bytes_taken(const StormOptions& options) {
  constexpr double kWindow = 8;
  constexpr double kRing = 2.0 * 1024 * 1024;
  const auto message = static_cast<double>(options.bytes != 0 ? options.bytes : options.most_bytes);
  return static_cast<double>(options.ranks) * options.channels * (2 * kWindow * message + kRing);
}
constexpr double kMostBytes = 1024.0 * 1024 * 1024;

/// @returns "" or which option is out of its bounds
std::string out_of_bounds(const StormOptions& options, int kills, int as_rank) {
  if (options.ranks < 2 || options.ranks > 64) return "--ranks: 2 to 64";
  if (options.channels < 1 || options.channels > 64) return "--channels: 1 to 64";
  if (options.messages == 0) return "--messages: 1 or more";
  if (options.rounds < 1) return "--rounds: 1 or more";
  if (options.most_bytes == 0) return "--most-bytes: 1 or more";
  if (options.patience_s < 1) return "--patience: 1 or more";
  if (kills < 0) return "--kills: 0 or more";
  if (as_rank >= options.ranks) return "--as-rank: less than --ranks";
  return "";
}

}  // namespace

int main(int count, char** words) {
  StormOptions options;
  options.library = "libdynamiccl-nccl-plugin.so";
  options.folder = "/dev/shm/dynamiccl-storm";
  int kills = 0;
  int as_rank = -1;
  std::string meeting;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const bool flag = word == "--fork" || word == "--fork-often" || word == "--tcp" ||
                      word == "--device" || word == "--in-turn" || word == "--verbose";
    if (!flag && i + 1 >= count) {
      std::fprintf(stderr, "%s needs a value\n", word.c_str());
      return 2;
    }
    const std::string value = flag ? "" : words[++i];
    char* end = nullptr;
    const long number = std::strtol(value.c_str(), &end, 10);
    const bool wants_text = word == "--library" || word == "--folder" || word == "--meeting";
    if (!flag && !wants_text && (value.empty() || *end != '\0' || number < 0)) {
      std::fprintf(stderr, "%s %s: a number of 0 or more is needed\n", word.c_str(), value.c_str());
      return 2;
    }
    if (word == "--fork")
      options.fork_children = true;
    else if (word == "--fork-often")
      options.fork_often = true;
    else if (word == "--tcp")
      options.folders_apart = true;
    else if (word == "--device")
      options.device = true;
    else if (word == "--in-turn")
      options.in_turn = true;
    else if (word == "--verbose")
      options.quiet = false;
    else if (word == "--library")
      options.library = value;
    else if (word == "--folder")
      options.folder = value;
    else if (word == "--version")
      options.version = static_cast<int>(number);
    else if (word == "--ranks")
      options.ranks = static_cast<int>(number);
    else if (word == "--channels")
      options.channels = static_cast<int>(number);
    else if (word == "--messages")
      options.messages = static_cast<std::uint64_t>(number);
    else if (word == "--most-bytes")
      options.most_bytes = static_cast<std::size_t>(number);
    else if (word == "--bytes")
      options.bytes = static_cast<std::size_t>(number);
    else if (word == "--rounds")
      options.rounds = static_cast<int>(number);
    else if (word == "--seed")
      options.seed = static_cast<std::uint64_t>(number);
    else if (word == "--patience")
      options.patience_s = static_cast<int>(number);
    else if (word == "--as-rank")
      as_rank = static_cast<int>(number);
    else if (word == "--meeting")
      meeting = value;
    else if (word == "--kills")
      kills = static_cast<int>(number);
    else {
      std::fprintf(stderr, "no option %s\n", word.c_str());
      return 2;
    }
  }
  if (const std::string why = out_of_bounds(options, kills, as_rank); !why.empty()) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return 2;
  }
  if (bytes_taken(options) > kMostBytes) {
    std::fprintf(stderr, "these ranks, channels and sizes take %.1f GiB of memory; at most 1\n",
                 bytes_taken(options) / kMostBytes);
    return 2;
  }
  mkdir(options.folder.c_str(), 0700);
  if (as_rank >= 0) dynamiccl::testing::run_storm_rank(options, as_rank, meeting);
  if (kills != 0) return kill_storms(options, kills);
  const StormResult result = run_storm(options);
  if (!result.ok) {
    std::printf("%s\n", result.problem.c_str());
    return 1;
  }
  const double messages = static_cast<double>(options.messages) * options.channels * options.rounds;
  std::printf("%.0f messages of each rank right, %.3f s", messages, result.seconds);
  if (options.bytes != 0)
    std::printf(", %.2f us each, %.2f GB/s sent by each rank", result.seconds / messages * 1e6,
                messages * static_cast<double>(options.bytes) / result.seconds / 1e9);
  std::printf("\n");
  return 0;
}
