#include "orchestrator/doctor/job/call_sizes.hpp"

#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/units.hpp"
#include "orchestrator/doctor/job/job_verdict.hpp"

namespace dynamiccl {
namespace {

// A probe takes the kernel some ten milliseconds to set and to remove, a call some microseconds.
constexpr std::size_t kMostProbes = 60;
constexpr std::size_t kMostCalls = 100;
constexpr std::chrono::milliseconds kPoll{20};

/// Collectives whose arguments give one size, and which argument is the count; the datatype comes
/// behind it.
struct SizedCall {
  std::string_view name;
  int count;
};
constexpr std::array kSizedCalls{
    SizedCall{"MPI_Allreduce", 3}, SizedCall{"MPI_Iallreduce", 3},
    SizedCall{"MPI_Reduce", 3},    SizedCall{"MPI_Reduce_scatter_block", 3},
    SizedCall{"MPI_Bcast", 2},     SizedCall{"MPI_Ibcast", 2},
    SizedCall{"MPI_Allgather", 2}, SizedCall{"MPI_Iallgather", 2},
    SizedCall{"MPI_Alltoall", 2},  SizedCall{"MPI_Gather", 2},
    SizedCall{"MPI_Scatter", 2},   SizedCall{"ncclAllReduce", 3},
    SizedCall{"ncclReduce", 3},    SizedCall{"ncclBroadcast", 3},
    SizedCall{"ncclAllGather", 3}, SizedCall{"ncclReduceScatter", 3},
};

// Of ncclDataType_t, from ncclInt8 to ncclFloat8e5m2.
constexpr std::array<std::uint64_t, 12> kNcclSizes{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

bool is_plain_size(std::uint64_t bytes) { return bytes > 0 && bytes <= 32; }

/// Where ompi_datatype_t has its size: behind the object's class and count, the flags, its number
/// and how many of its kinds it uses.
constexpr std::uint64_t kSizeInOpenMpi = 24;

std::optional<std::uint64_t> word_of(pid_t pid, std::uint64_t address) {
  std::uint64_t value = 0;
  iovec here{&value, sizeof value};
  iovec there{reinterpret_cast<void*>(address), sizeof value};
  if (process_vm_readv(pid, &here, 1, &there, 1, 0) != static_cast<ssize_t>(sizeof value))
    return std::nullopt;
  return value;
}

/// Its main thread, and those in which PyTorch goes backward.
std::vector<pid_t> calling_threads(pid_t pid) {
  std::vector<pid_t> threads{pid};
  std::error_code gone;
  for (std::filesystem::directory_iterator entry(fmt::format("/proc/{}/task", pid), gone), end;
       !gone && entry != end; entry.increment(gone))
    if (file_text(entry->path() / "comm").starts_with("pt_autograd"))
      threads.push_back(std::atoi(entry->path().filename().c_str()));
  return threads;
}

/// Calls of MPI in which looks have found any of the ranks, and NCCL's.
std::vector<std::string> watched_names(const std::vector<LiveRank>& ranks) {
  std::set<std::string> found;
  for (const auto& rank : ranks)
    for (const auto& look : rank.looks) found.insert(look.stack.call);
  std::vector<std::string> names;
  for (const auto& call : kSizedCalls)
    if (const std::string name(call.name); name.starts_with("nccl") || found.contains(name))
      names.push_back(name);
  return names;
}

/// The probes in one library of one rank.
struct Watched {
  LiveRank* rank;
  std::string library;
  std::vector<std::string> names;
  std::vector<std::unique_ptr<EntryWatch>> threads;
  std::size_t calls = 0;
};

std::vector<Watched> watched_in(std::vector<LiveRank>& ranks, std::string& problem) {
  const auto names = watched_names(ranks);
  std::vector<Watched> all;
  std::size_t probes = 0;
  for (auto& rank : ranks)
    for (const auto& library : rank.libraries) {
      if (library.name != "Open MPI" && library.name != "MPICH" && library.name != "NCCL") continue;
      const auto file = fmt::format("/proc/{}/root{}", rank.pid, library.path);
      Watched one{&rank, library.name, {}, {}, 0};
      std::vector<std::uint64_t> places;
      for (const auto& name : names)
        if (name.starts_with("nccl") == (library.name == "NCCL"))
          if (const auto place = place_in_file(file, name)) {
            one.names.push_back(name);
            places.push_back(*place);
          }
      for (const pid_t thread : calling_threads(rank.pid)) {
        probes += places.size();
        if (places.empty() || probes > kMostProbes) break;
        one.threads.push_back(std::make_unique<EntryWatch>(thread, file, places));
        problem = one.threads.back()->problem();
        if (!problem.empty()) return {};
      }
      if (!one.threads.empty()) all.push_back(std::move(one));
    }
  return all;
}

void take_into_rank(Watched& one) {
  for (const auto& thread : one.threads)
    for (const auto& entry : thread->take()) {
      ++one.calls;
      const auto bytes =
          bytes_of_call(one.names[entry.function], one.library, entry,
                        [&](std::uint64_t address) { return word_of(one.rank->pid, address); });
      auto& calls = one.rank->calls;
      const auto same = std::find_if(calls.begin(), calls.end(), [&](const BegunCall& call) {
        return call.name == one.names[entry.function] && call.bytes == bytes.value_or(0);
      });
      if (same != calls.end())
        ++same->times;
      else
        calls.push_back({one.names[entry.function], bytes.value_or(0), 1, 0});
    }
}

}  // namespace

std::optional<std::uint64_t> bytes_of_call(
    const std::string& call, const std::string& library, const SeenEntry& entry,
    const std::function<std::optional<std::uint64_t>(std::uint64_t)>& word_at) {
  const auto sized = std::find_if(kSizedCalls.begin(), kSizedCalls.end(),
                                  [&](const SizedCall& one) { return one.name == call; });
  if (sized == kSizedCalls.end()) return std::nullopt;
  const auto count = sized->count == 2 ? entry.second : entry.third;
  const auto datatype = sized->count == 2 ? entry.third : entry.fourth;
  if (library == "NCCL") {
    const auto number = static_cast<std::uint32_t>(datatype);
    if (number >= kNcclSizes.size()) return std::nullopt;
    return count * kNcclSizes[number];
  }
  // MPI's counts and MPICH's datatypes are of 32 bits; above them a register has anything.
  const auto elements = static_cast<std::uint32_t>(count);
  std::optional<std::uint64_t> size;
  if (library == "MPICH") {
    // A plain datatype's handle has its size in it.
    const auto handle = static_cast<std::uint32_t>(datatype);
    if (handle >> 24 == 0x4c) size = handle >> 8 & 0xff;
  } else {
    size = word_at(datatype + kSizeInOpenMpi);
  }
  if (!size || !is_plain_size(*size)) return std::nullopt;
  return elements * *size;
}

std::string watch_calls(std::vector<LiveRank>& ranks, double seconds) {
  std::string problem;
  auto all = watched_in(ranks, problem);
  const auto begun = std::chrono::steady_clock::now();
  const auto so_far = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  const auto enough = [](const Watched& one) { return one.calls >= kMostCalls; };
  while (!all.empty() && so_far() < seconds && std::none_of(all.begin(), all.end(), enough)) {
    std::this_thread::sleep_for(kPoll);
    for (auto& one : all) take_into_rank(one);
  }
  for (auto& one : all)
    for (auto& call : one.rank->calls) call.seconds = so_far();
  return problem;
}

std::vector<std::string> lines_of_calls(const std::vector<LiveRank>& ranks) {
  struct Same {
    std::vector<int> ranks;
    unsigned fewest = 0;
    unsigned most = 0;
    double seconds = 0;
  };
  std::map<std::pair<std::string, std::uint64_t>, Same> kinds;
  for (const auto& rank : ranks)
    for (const auto& call : rank.calls) {
      auto& same = kinds[{call.name, call.bytes}];
      same.fewest = same.ranks.empty() ? call.times : std::min(same.fewest, call.times);
      same.most = std::max(same.most, call.times);
      same.seconds = call.seconds;
      same.ranks.push_back(rank.rank);
    }
  std::vector<std::string> lines;
  for (const auto& [kind, same] : kinds)
    lines.push_back(fmt::format("{} began {}{} {} in {:.1f} s", ranks_text(same.ranks), kind.first,
                                kind.second == 0 ? "" : " of " + format_bytes(Bytes{kind.second}),
                                same.fewest == same.most
                                    ? counted(same.most, "time")
                                    : fmt::format("{} to {} times", same.fewest, same.most),
                                same.seconds));
  return lines;
}

}  // namespace dynamiccl
