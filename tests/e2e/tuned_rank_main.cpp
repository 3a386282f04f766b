// One rank of a job, as far as NCCL's plugins can tell: it makes no collective, but keeps in step
// with the others through a file that all of them map, as queued collectives would. Every call's
// answer is a line of its log, "CHANNELS CHOSEN".
//   tuned-rank RANK RANKS COMMUNICATOR SYNC LOG CALLS
// Exit codes: 0 all calls made, 7 the plugin refused one, 8 the others made no calls for 40 s.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <random>
#include <thread>

#include "tests/e2e/nccl_plugins.hpp"

namespace {

using namespace dynamiccl::testing;

constexpr int kMostRanks = 64;
/// Calls that a rank may be ahead of another, as kernels queue up.
constexpr std::int64_t kQueued = 3;

struct Calls {
  std::atomic<std::int64_t> made[kMostRanks];
};

Calls* map_calls(const char* path) {
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0 || ftruncate(file, sizeof(Calls)) != 0) std::exit(2);
  void* memory = mmap(nullptr, sizeof(Calls), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) std::exit(2);
  return static_cast<Calls*>(memory);
}

/// @returns false when the others have stopped
bool keep_in_step(const Calls& calls, int ranks, std::int64_t n) {
  for (int tries = 0; tries < 400000; ++tries) {
    std::int64_t least = n;
    for (int r = 0; r < ranks; ++r) least = std::min(least, calls.made[r].load());
    if (least >= n - kQueued) return true;
    usleep(100);
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const int rank = std::atoi(argv[1]);
  const int ranks = std::atoi(argv[2]);
  const std::int64_t count = std::atoll(argv[6]);
  Calls* calls = map_calls(argv[4]);
  std::ofstream log(argv[5]);
  Plugins plugins(std::strtoull(argv[3], nullptr, 10), ranks, rank);
  std::mt19937 random(static_cast<unsigned>(rank));
  int code = 0;
  for (std::int64_t n = 0; n < count && code == 0; ++n) {
    if (!keep_in_step(*calls, ranks, n)) code = 8;
    const std::size_t bytes = n % 3 == 0 ? std::size_t{16} << 20 : std::size_t{1} << 20;
    const auto answer = plugins.answer(bytes);
    if (answer.failed) return 7;
    log << answer.channels << ' ' << answer.chosen << '\n' << std::flush;
    plugins.tell(bytes, std::max(1, answer.channels), [&] {
      usleep(static_cast<unsigned>(100 + 20 * answer.channels + static_cast<int>(random() % 50)));
    });
    calls->made[rank].store(n + 1);
  }
  // Who has ended holds nobody up.
  if (code == 0) calls->made[rank].store(std::numeric_limits<std::int64_t>::max());
  return code;
}
