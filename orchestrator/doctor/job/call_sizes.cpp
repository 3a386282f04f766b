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

/// What the count of a call is of: all that a rank gives, that where it is not in place, or the
/// part of each rank.
enum class CountOf { all, all_unless_in_place, part, part_unless_in_place };

/// Collectives whose arguments give one size, and which argument is the count; the datatype comes
/// behind it.
struct SizedCall {
  std::string_view name;
  int count;
  CountOf of = CountOf::all;
};
constexpr std::array kSizedCalls{
    SizedCall{"MPI_Allreduce", 3},
    SizedCall{"MPI_Iallreduce", 3},
    SizedCall{"MPI_Reduce", 3},
    SizedCall{"MPI_Reduce_scatter_block", 3, CountOf::part},
    SizedCall{"MPI_Bcast", 2},
    SizedCall{"MPI_Ibcast", 2},
    SizedCall{"MPI_Allgather", 2, CountOf::all_unless_in_place},
    SizedCall{"MPI_Iallgather", 2, CountOf::all_unless_in_place},
    SizedCall{"MPI_Alltoall", 2, CountOf::part_unless_in_place},
    SizedCall{"MPI_Gather", 2, CountOf::all_unless_in_place},
    SizedCall{"ncclAllReduce", 3},
    SizedCall{"ncclReduce", 3},
    SizedCall{"ncclBroadcast", 3},
    SizedCall{"ncclAllGather", 3},
    SizedCall{"ncclReduceScatter", 3, CountOf::part},
};

const SizedCall* sized_call(const std::string& name) {
  const auto* found = std::find_if(kSizedCalls.begin(), kSizedCalls.end(),
                                   [&](const SizedCall& one) { return one.name == name; });
  return found == kSizedCalls.end() ? nullptr : found;
}

/// Whether a call's count and datatype say nothing, as it is in place.
bool ignores_count(const SizedCall& call, const std::string& library, std::uint64_t first) {
  // MPI_IN_PLACE of each.
  const auto in_place = library == "MPICH" ? ~std::uint64_t{0} : std::uint64_t{1};
  return first == in_place &&
         (call.of == CountOf::all_unless_in_place || call.of == CountOf::part_unless_in_place);
}

/// " of 32 KiB", " of 32 KiB a part"
std::string size_words(const std::string& name, std::uint64_t bytes) {
  if (bytes == 0) return "";
  const auto* call = sized_call(name);
  const bool part =
      call != nullptr && (call->of == CountOf::part || call->of == CountOf::part_unless_in_place);
  return " of " + format_bytes(Bytes{bytes}) + (part ? " a part" : "");
}

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

/// Calls of one library of a rank that can be watched.
struct Watchable {
  std::string library;
  std::string file;
  std::vector<std::string> names;
  std::vector<std::uint64_t> places;  ///< of each
};

std::vector<Watchable> watchable_in(const LiveRank& rank, const std::vector<std::string>& names) {
  std::vector<Watchable> all;
  for (const auto& library : rank.libraries) {
    if (library.name != "Open MPI" && library.name != "MPICH" && library.name != "NCCL") continue;
    Watchable one{library.name, fmt::format("/proc/{}/root{}", rank.pid, library.path), {}, {}};
    for (const auto& name : names)
      if (name.starts_with("nccl") == (library.name == "NCCL"))
        if (const auto place = place_in_file(one.file, name)) {
          one.names.push_back(name);
          one.places.push_back(*place);
        }
    if (!one.places.empty()) all.push_back(std::move(one));
  }
  return all;
}

/// Sets the probes of one rank, but those of threads that are over.
/// @returns why it cannot; "" = they are set
std::string set_probes(LiveRank& rank, const std::vector<pid_t>& threads,
                       const std::vector<Watchable>& libraries, std::vector<Watched>& all) {
  for (const auto& library : libraries) {
    Watched one{&rank, library.library, library.names, {}, 0};
    for (const pid_t thread : threads) {
      auto watch = std::make_unique<EntryWatch>(thread, library.file, library.places);
      if (watch->thread_is_over()) continue;
      if (!watch->problem().empty()) return watch->problem();
      one.threads.push_back(std::move(watch));
    }
    if (!one.threads.empty()) all.push_back(std::move(one));
  }
  return "";
}

/// Of each rank all probes or none, as many ranks as there are probes and time for.
std::vector<Watched> watched_in(std::vector<LiveRank>& ranks, const std::function<bool()>& has_time,
                                std::string& problem) {
  const auto names = watched_names(ranks);
  std::vector<Watched> all;
  std::size_t probes = 0;
  std::size_t left_out = 0;
  for (auto& rank : ranks) {
    const auto libraries = watchable_in(rank, names);
    const auto threads = calling_threads(rank.pid);
    std::size_t needed = 0;
    for (const auto& library : libraries) needed += library.places.size() * threads.size();
    if (needed == 0) continue;
    if (probes + needed > kMostProbes || (probes > 0 && !has_time())) {
      ++left_out;
      continue;
    }
    probes += needed;
    problem = set_probes(rank, threads, libraries, all);
    if (!problem.empty()) return {};
  }
  if (left_out > 0)
    problem = fmt::format("calls of {} of {}, whose probes would take too long", left_out,
                          counted(ranks.size(), "rank"));
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
  const auto* sized = sized_call(call);
  if (sized == nullptr || ignores_count(*sized, library, entry.first)) return std::nullopt;
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
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point moment) {
    return std::chrono::duration<double>(Clock::now() - moment).count();
  };
  const auto started = Clock::now();
  std::string problem;
  auto all = watched_in(
      ranks, [&] { return since(started) < seconds / 4; }, problem);
  if (all.empty()) return problem;
  // Each ring has seen calls since its own probes were set.
  for (auto& one : all)
    for (auto& thread : one.threads) static_cast<void>(thread->take());
  const auto begun = Clock::now();
  // The kernel removes probes in about the time in which it sets them.
  const double watched = seconds - 2 * since(started);
  if (watched <= 0) return "sizes of calls, as probes took all the time that there was";
  const auto enough = [](const Watched& one) { return one.calls >= kMostCalls; };
  while (since(begun) < watched && std::none_of(all.begin(), all.end(), enough)) {
    std::this_thread::sleep_for(kPoll);
    for (auto& one : all) take_into_rank(one);
  }
  const double took = since(begun);
  for (auto& one : all)
    for (auto& call : one.rank->calls) call.seconds = took;
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
      same.seconds = std::max(same.seconds, call.seconds);
      same.ranks.push_back(rank.rank);
    }
  std::vector<std::string> lines;
  for (const auto& [kind, same] : kinds)
    lines.push_back(fmt::format("{} began {}{} {} in {:.1f} s", ranks_text(same.ranks), kind.first,
                                size_words(kind.first, kind.second),
                                same.fewest == same.most
                                    ? counted(same.most, "time")
                                    : fmt::format("{} to {} times", same.fewest, same.most),
                                same.seconds));
  return lines;
}

}  // namespace dynamiccl
