#include "tests/plugin/agreement/agreement_storm.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <ctime>
#include <random>
#include <thread>
#include <vector>

#include "plugin/agreement/leader.hpp"
#include "plugin/agreement/member.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kMostCalls = 100'000;
constexpr std::size_t kFunction = 4;
constexpr std::size_t kBin = 20;

/// Of one job, shared by its processes and the observer.
struct Job {
  std::atomic<int> ended;  ///< the leader has made its proposals
  std::atomic<std::uint64_t> proposals;
  std::atomic<std::uint64_t> committed;
  std::array<std::atomic<std::uint64_t>, 16> calls;  ///< per rank
  /// Table by rank and call: a number that was written into the table's cell.
  std::array<std::array<std::uint16_t, kMostCalls>, 16> used;
};

thread_local std::mt19937_64 g_random;
int g_delay_ms = 0;

void sleep_us(long microseconds) {
  timespec pause{microseconds / 1'000'000, (microseconds % 1'000'000) * 1000};
  while (nanosleep(&pause, &pause) != 0) {
  }
}

void delay(const char* /*where*/) {
  sleep_us(std::uniform_int_distribution<long>(0, g_delay_ms * 1000L)(g_random));
}

CallTable table_number(std::uint16_t number) {
  CallTable table;
  table.cells[kFunction][kBin] = {static_cast<std::uint8_t>(number & 0xff),
                                  static_cast<std::uint8_t>(number >> 8), 0, 0};
  return table;
}

/// Ranks run apart as the calls of a job do that are only queued: by at most `window`.
void rank_process(Job& job, const std::string& path, int rank, int ranks, int window) {
  std::string problem;
  Member member(std::shared_ptr<Region>(Region::open(path, problem)));
  auto& own = job.calls[static_cast<std::size_t>(rank)];
  while (job.ended.load() == 0 && own.load() < kMostCalls) {
    for (;;) {
      std::uint64_t least = UINT64_MAX;
      for (int other = 0; other < ranks; ++other)
        least = std::min(least, job.calls[static_cast<std::size_t>(other)].load());
      if (own.load() < least + static_cast<std::uint64_t>(window) || job.ended.load() != 0) break;
      sleep_us(std::max(500L, g_delay_ms * 20L));
    }
    delay("look-up");
    const CallCell cell = member.decide(kFunction, kBin);
    job.used[static_cast<std::size_t>(rank)][own.load()] =
        static_cast<std::uint16_t>(cell.algorithm | cell.protocol << 8);
    own.fetch_add(1);
  }
}

void leader_process(Job& job, const std::string& path, int proposals) {
  std::string problem;
  Leader leader(std::shared_ptr<Region>(Region::open(path, problem)));
  std::int64_t ahead = 4;
  for (int i = 1; i <= proposals; ++i) {
    while (leader.poll() != Leader::Progress::free) delay("poll");
    delay("table");
    const std::uint32_t epoch = leader.write_table(table_number(static_cast<std::uint16_t>(i)));
    delay("announce");
    leader.announce(epoch, leader.spread() + ahead);
    job.proposals.fetch_add(1);
    while (leader.poll() == Leader::Progress::open) delay("poll");
    const bool committed = leader.committed();
    if (committed) job.committed.fetch_add(1);
    // Nearer when it went well: boundaries that ranks just reach are what is tested.
    ahead =
        committed ? std::max<std::int64_t>(ahead - 1, 1) : std::min<std::int64_t>(ahead + 2, 40);
  }
  while (leader.poll() == Leader::Progress::settling) delay("poll");
  job.ended.store(1);
}

template <class F>
pid_t start_process(std::uint64_t seed, F&& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  g_random.seed(seed);
  int code = 0;
  try {
    body();
  } catch (const std::exception&) {
    code = 1;
  }
  _exit(code);
}

void check_job(const Job& job, int ranks, StormResult& result) {
  std::uint64_t common = UINT64_MAX;
  for (int rank = 0; rank < ranks; ++rank)
    common = std::min(common, job.calls[static_cast<std::size_t>(rank)].load());
  const std::uint64_t proposals = job.proposals.load();
  for (std::uint64_t call = 0; call < common; ++call) {
    bool equal = true;
    for (int rank = 1; rank < ranks; ++rank)
      equal = equal && job.used[static_cast<std::size_t>(rank)][call] == job.used[0][call];
    if (!equal) ++result.differing;
    const std::uint16_t number = job.used[0][call];
    if (number > proposals && number != 0xffff) ++result.lost;
    if (call > 0 && number != job.used[0][call - 1]) ++result.adopted;
  }
  result.calls += common;
  result.proposals += proposals;
  result.committed += job.committed.load();
}

/// Stops and continues processes at random until all leaders have ended.
std::uint64_t disturb(const std::vector<pid_t>& processes, const Job* jobs, int count,
                      const StormOptions& options) {
  std::mt19937_64 random(options.seed ^ 0x5709);
  std::uint64_t stops = 0;
  std::vector<std::pair<pid_t, int>> stopped;  // and rounds left
  const auto running = [&] {
    return std::any_of(jobs, jobs + count, [](const Job& job) { return job.ended.load() == 0; });
  };
  constexpr long kRoundUs = 5000;
  const int rounds = std::max(1, options.delay_ms * 1000 / static_cast<int>(kRoundUs));
  while (running()) {
    for (int i = 0; i <= static_cast<int>(processes.size()) / 64; ++i) {
      const pid_t chosen = processes[random() % processes.size()];
      if (!options.stop_processes || waitpid(chosen, nullptr, WNOHANG) != 0) continue;
      kill(chosen, SIGSTOP);
      stopped.emplace_back(chosen, 1 + static_cast<int>(random() % static_cast<unsigned>(rounds)));
      ++stops;
    }
    sleep_us(kRoundUs);
    std::erase_if(stopped, [](auto& entry) {
      if (--entry.second > 0) return false;
      kill(entry.first, SIGCONT);
      return true;
    });
  }
  for (const auto& [process, left] : stopped) kill(process, SIGCONT);
  return stops;
}

}  // namespace

StormResult run_storm(const StormOptions& options, const std::string& folder) {
  StormResult result;
  const auto count = static_cast<std::size_t>(options.jobs);
  void* memory = mmap(nullptr, count * sizeof(Job), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return result;
  auto* jobs = static_cast<Job*>(memory);
  g_delay_ms = options.delay_ms;
  g_control_pause = delay;
  std::mt19937_64 seeds(options.seed);
  std::vector<pid_t> processes;
  for (int j = 0; j < options.jobs; ++j) {
    std::string problem;
    Region::Spec spec{static_cast<std::uint64_t>(j) + 1, static_cast<unsigned>(options.ranks)};
    if (Region::open_or_make(folder, spec, problem) == nullptr) ++result.failed_processes;
    const std::string path = Region::path_of(folder, spec.communicator);
    const int window = 1 + static_cast<int>(seeds() % 6);
    const int proposals =
        options.switches * (j + 1) / options.jobs - options.switches * j / options.jobs;
    for (int rank = 0; rank < options.ranks; ++rank)
      processes.push_back(start_process(
          seeds(), [&] { rank_process(jobs[j], path, rank, options.ranks, window); }));
    processes.push_back(start_process(seeds(), [&] { leader_process(jobs[j], path, proposals); }));
  }
  result.stops = disturb(processes, jobs, options.jobs, options);
  for (const pid_t process : processes) {
    int status = 0;
    if (waitpid(process, &status, 0) == process && status != 0) ++result.failed_processes;
  }
  g_control_pause = nullptr;
  for (std::size_t j = 0; j < count; ++j) check_job(jobs[j], options.ranks, result);
  munmap(memory, count * sizeof(Job));
  return result;
}

}  // namespace dynamiccl
