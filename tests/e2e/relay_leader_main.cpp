// A leader that does nothing but propose: another table as soon as the last one is settled, for
// ranks of several hosts whose relays come to PORT. What learners propose once in a hundred calls,
// this one does as often as the agreement allows.
//   relay-leader FOLDER PORT SEED
// Ends with its ranks, or by a signal, as a leader does.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>

#include "core/vocabulary/error.hpp"
#include "tests/tuner/control/calls.hpp"
#include "tuner/control/relay.hpp"

namespace {

using namespace dynamiccl;

std::atomic<bool> g_stop{false};
constexpr std::int64_t kPatienceNs = 5'000'000'000;

std::shared_ptr<Region> wait_for_region(const std::string& folder) {
  std::string problem;
  for (;;) {
    const auto paths = regions_in(folder);
    if (!paths.empty())
      if (std::shared_ptr<Region> region = Region::open(paths.front(), problem)) return region;
    if (g_stop) std::exit(0);
    usleep(1000);
  }
}

/// @returns false when the ranks have left
bool lead(const std::string& folder, const std::shared_ptr<RelayDesk>& desk, std::mt19937& random) {
  AcrossHostsLeader leader(wait_for_region(folder), desk, kPatienceNs);
  // As few as the hosts' delays allow, found by trying.
  std::int64_t ahead = 8;
  bool proposed = false;
  try {
    while (!g_stop) {
      const auto progress = leader.poll();
      if (progress == TableLeader::Progress::ended) return false;
      if (progress == TableLeader::Progress::free) {
        if (proposed)
          ahead = leader.committed() ? std::max<std::int64_t>(ahead - 1, 2)
                                     : std::min<std::int64_t>(2 * ahead, 512);
        leader.propose(testing::with_channels(static_cast<std::uint8_t>(1 + random() % 32)),
                       leader.spread() + ahead);
        proposed = true;
      }
      usleep(200);
    }
  } catch (const Error& error) {
    // A relay that was lost comes back.
    std::fprintf(stderr, "%s\n", error.what());
  }
  return !g_stop;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  std::signal(SIGTERM, [](int) { g_stop = true; });
  std::mt19937 random(static_cast<unsigned>(std::atoi(argv[3])));
  try {
    const auto desk = std::make_shared<RelayDesk>(std::atoi(argv[2]));
    while (lead(argv[1], desk, random)) {
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
