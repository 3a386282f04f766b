#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/job/job_summary.hpp"
#include "orchestrator/doctor/job/job_verdict.hpp"

namespace dynamiccl {
namespace {

// Of the time that a GPU's memory is in use: in a kernel that mostly waits, and at work.
constexpr double kWaitingGpu = 0.02;
constexpr double kBusyGpu = 0.03;
constexpr double kFarBusier = 3;

/// Collectives of which ranks have launched different numbers, and who are fewest with theirs: of
/// two with one rank each, both.
std::string uneven_text(const LiveJob& job, std::set<int>& odd) {
  std::vector<std::string> parts;
  for (const auto& answer : job.ras) {
    std::map<std::string, std::map<std::uint64_t, std::vector<int>>> by_call;
    std::set<std::string> calls;
    for (const auto& [rank, launched] : answer.launched)
      for (const auto& [call, count] : launched) calls.insert(call);
    for (const auto& call : calls)
      for (const auto& [rank, launched] : answer.launched) {
        const auto found = launched.find(call);
        by_call[call][found == launched.end() ? 0 : found->second].push_back(rank);
      }
    for (const auto& [call, by_count] : by_call) {
      if (by_count.size() < 2) continue;
      std::size_t fewest = answer.launched.size();
      for (const auto& [count, ranks] : by_count) fewest = std::min(fewest, ranks.size());
      for (const auto& [count, ranks] : by_count) {
        parts.push_back(fmt::format("{} {} of {}", count, call, ranks_text(ranks)));
        if (ranks.size() == fewest) odd.insert(ranks.begin(), ranks.end());
      }
    }
  }
  return join(parts, ", ");
}

}  // namespace

void add_gpu(RankSummary& sum, const std::vector<RankLook>& looks) {
  double all[2] = {0, 0};
  int known[2] = {0, 0};
  double first_s = -1;
  for (std::size_t i = 0; i < looks.size(); ++i) {
    if (looks[i].launched > 0) {
      if (first_s < 0) first_s = looks[i].at_s;
      sum.counted = looks[i].at_s - first_s >= kFewestSeconds;
      sum.launches = sum.launches || (sum.launched > 0 && looks[i].launched != sum.launched);
      sum.launched = looks[i].launched;
    }
    if (looks[i].gpu_memory < 0) continue;
    const std::size_t half = 2 * i < looks.size() ? 0 : 1;
    sum.gpu = std::max(sum.gpu, looks[i].gpu_memory);
    all[half] += looks[i].gpu_memory;
    ++known[half];
  }
  for (int half = 0; half < 2; ++half)
    if (known[half] > 0) sum.gpu_halves[half] = all[half] / known[half];
}

bool needs_gpu(const RankSummary& one) {
  return one.kind == CallKind::gpu || one.call.starts_with("nccl");
}

bool on_still_gpus(const std::vector<const RankSummary*>& some) {
  return std::all_of(some.begin(), some.end(), [](const RankSummary* one) {
    return one->counted && one->gpu >= 0 && one->gpu <= kIdleGpu;
  });
}

JobVerdict standing_on_gpus(const LiveJob& job, const std::vector<const RankSummary*>& stand) {
  JobVerdict found{JobState::hung, "same-call", {}, "", {}, {}};
  const auto wait = all_do(job, "wait");
  const bool alone = wait.ends_with("waits");
  found.says = fmt::format("{} for {} in {} and {} no collective any more", wait,
                           alone ? "its GPU" : "their GPUs", stand.front()->call,
                           alone ? "launches" : "launch");
  if (!on_still_gpus(stand)) {
    found.state = JobState::unknown;
    found.id = "gpu-wait";
    found.says =
        fmt::format("{} for {} in {}: within {:.0f} s a long step and a hang look alike",
                    stand.size() == job.ranks.size()
                        ? wait
                        : ranks_text(numbers_of(stand)) + (stand.size() == 1 ? " waits" : " wait"),
                    stand.size() == 1 ? "its GPU" : "their GPUs", stand.front()->call, job.seconds);
    if (!job.ras_problem.empty()) found.evidence.push_back(job.ras_problem);
    found.next = {"look again in a while: the same answer is a hang where a step takes less",
                  "what its kernels are: cuda-gdb -p " + std::to_string(stand.front()->rank->pid) +
                      " -batch -ex 'info cuda kernels'" + on_host(stand.front()->rank->host) +
                      ", for which it stands some seconds"};
    return found;
  }
  std::set<int> odd;
  const auto uneven = uneven_text(job, odd);
  if (uneven.empty()) {
    found.next = {
        "each has launched as many: they differ in count, datatype, root or order; "
        "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 with TORCH_NCCL_DUMP_ON_TIMEOUT=1 at the next start "
        "tells in which"};
    return found;
  }
  found.id = "other-call";
  found.ranks.assign(odd.begin(), odd.end());
  found.says += ", of which they have not launched the same: " + uneven;
  found.next = {"look for a branch on the rank before a collective, and for one that is missing"};
  return found;
}

MaybeVerdict find_busy_gpu(const LiveJob& job, const std::vector<RankSummary>& all) {
  if (all.size() < 2 || job.seconds < 2 * kFewestSeconds) return std::nullopt;
  const auto busiest = std::max_element(
      all.begin(), all.end(), [](const RankSummary& one, const RankSummary& other) {
        return one.gpu_halves[0] + one.gpu_halves[1] < other.gpu_halves[0] + other.gpu_halves[1];
      });
  const auto others = those(all, [&](const RankSummary& one) { return &one != &*busiest; });
  const bool apart = std::all_of(others.begin(), others.end(), [&](const RankSummary* one) {
    return one->inside >= kMostly && one->launches &&
           std::all_of(std::begin(one->gpu_halves), std::end(one->gpu_halves),
                       [](double half) { return half >= 0 && half <= kWaitingGpu; }) &&
           kFarBusier * one->gpu_halves[0] < busiest->gpu_halves[0] &&
           kFarBusier * one->gpu_halves[1] < busiest->gpu_halves[1];
  });
  if (!apart || busiest->gpu_halves[0] < kBusyGpu || busiest->gpu_halves[1] < kBusyGpu)
    return std::nullopt;
  const auto& rank = *busiest->rank;
  JobVerdict found{JobState::slow, "late", {rank.rank}, "", {}, {}};
  found.says = fmt::format("{} comes last: its GPU works while {} {} in kernels for it",
                           ranks_text(found.ranks),
                           others.size() == 1 ? "the other one" : "those of the others",
                           others.size() == 1 ? "waits" : "wait");
  found.next = {
      "its GPU has more to do than the others', or is slower: nvidia-smi -q -d "
      "PERFORMANCE,CLOCK" +
      on_host(rank.host)};
  return found;
}

}  // namespace dynamiccl
