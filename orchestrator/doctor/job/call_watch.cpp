#include "orchestrator/doctor/job/call_watch.hpp"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <thread>

#include "core/vocabulary/file_descriptor.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

// Setting and removing one takes the kernel some ten milliseconds.
constexpr std::size_t kMostEvents = 24;  // of a rank
constexpr std::size_t kLargestTable = std::size_t{64} << 20;
constexpr std::size_t kRingPages = 32;
// Of entry and return together, on a loaded machine.
constexpr double kCallCostS = 13e-6;
constexpr double kMostCost = 0.01;

bool is_collective(std::string_view name, const std::set<std::string>& names) {
  static constexpr std::array<std::string_view, 11> kGloo{
      "9allreduceE", "9broadcastE", "7barrierE", "6reduceE", "9allgatherE", "10allgathervE",
      "8alltoallE",  "9alltoallvE", "7scatterE", "6gatherE", "7gathervE"};
  if (constexpr std::string_view kPrefix = "_ZN4gloo"; name.starts_with(kPrefix)) {
    name.remove_prefix(kPrefix.size());
    return std::any_of(kGloo.begin(), kGloo.end(),
                       [&](std::string_view one) { return name.starts_with(one); });
  }
  return name.starts_with("MPI_") && names.contains(std::string(name));
}

/// Calls in which looks have found any of the ranks.
std::set<std::string> calls_seen(const std::vector<LiveRank>& ranks) {
  std::set<std::string> names;
  for (const auto& rank : ranks)
    for (const auto& look : rank.looks)
      if (look.stack.kind == CallKind::collective) names.insert(look.stack.call);
  return names;
}

/// Whole, or empty where the file is shorter or the part too large.
std::string part_of(int file, std::uint64_t offset, std::uint64_t size) {
  if (size > kLargestTable) return "";
  std::string bytes(size, '\0');
  return pread(file, bytes.data(), size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size)
             ? bytes
             : "";
}

template <class T>
std::vector<T> table_of(int file, std::uint64_t offset, std::uint64_t size) {
  const auto bytes = part_of(file, offset, size / sizeof(T) * sizeof(T));
  std::vector<T> table(bytes.size() / sizeof(T));
  if (!table.empty()) std::memcpy(table.data(), bytes.data(), table.size() * sizeof(T));
  return table;
}

/// Where an address of the file's own numbering lies in the file.
std::optional<std::uint64_t> file_offset(const std::vector<Elf64_Phdr>& segments,
                                         std::uint64_t address) {
  for (const auto& one : segments)
    if (one.p_type == PT_LOAD && (one.p_flags & PF_X) != 0 && address >= one.p_vaddr &&
        address - one.p_vaddr < one.p_filesz)
      return address - one.p_vaddr + one.p_offset;
  return std::nullopt;
}

/// Files of which a process runs code, as this one reaches them.
std::set<std::string> code_files(pid_t pid) {
  std::set<std::string> files;
  for (const auto& line : split(file_text(fmt::format("/proc/{}/maps", pid)), '\n')) {
    const auto slash = line.find('/');
    if (slash == std::string::npos || line.find(" r-xp ") == std::string::npos) continue;
    files.insert(fmt::format("/proc/{}/root{}", pid, line.substr(slash)));
  }
  return files;
}

int open_probe(int type, const std::string& file, std::uint64_t offset, bool at_return,
               pid_t thread) {
  perf_event_attr attributes{};
  attributes.type = static_cast<std::uint32_t>(type);
  attributes.size = sizeof attributes;
  attributes.config = at_return ? 1 : 0;
  attributes.config1 = reinterpret_cast<std::uintptr_t>(file.c_str());
  attributes.config2 = offset;
  attributes.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TIME;
  attributes.sample_period = 1;
  attributes.disabled = 1;
  attributes.use_clockid = 1;
  attributes.clockid = CLOCK_MONOTONIC;
  return static_cast<int>(
      syscall(SYS_perf_event_open, &attributes, thread, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string why_not(int error) {
  if (error == EACCES || error == EPERM)
    return "how long ranks are in calls is counted as root or with CAP_PERFMON alone";
  return fmt::format("the kernel sets no probe on the ranks' calls: {}", std::strerror(error));
}

}  // namespace

/// One ring of the kernel, which all probes of a thread write into.
struct CallWatch::Thread {
  std::vector<FileDescriptor> probes;
  std::set<std::uint64_t> returns;  ///< which of their identifiers are returns
  void* ring = nullptr;
  std::size_t bytes = 0;
  bool known = false;  ///< whether it is inside, as an event or the time before has shown
  unsigned depth = 0;

  Thread() = default;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  ~Thread() {
    if (ring != nullptr) munmap(ring, bytes);
  }

  /// @returns the error; 0 = it is open
  int add(int type, const FunctionPlaces& places, pid_t thread) {
    for (const auto offset : places.offsets)
      for (const bool at_return : {false, true}) {
        FileDescriptor probe(open_probe(type, places.file, offset, at_return, thread));
        if (probe.get() < 0) return errno;
        std::uint64_t id = 0;
        if (ioctl(probe.get(), PERF_EVENT_IOC_ID, &id) != 0) return errno;
        if (at_return) returns.insert(id);
        if (ring == nullptr) {
          const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
          bytes = page * (1 + kRingPages);
          ring = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, probe.get(), 0);
          if (ring == MAP_FAILED) {
            ring = nullptr;
            return errno;
          }
        } else if (ioctl(probe.get(), PERF_EVENT_IOC_SET_OUTPUT, probes.front().get()) != 0) {
          return errno;
        }
        probes.push_back(std::move(probe));
      }
    return 0;
  }

  /// Takes what the ring holds into a slice that began at `from_s` and ends at `to_s`.
  void read(double from_s, double to_s, CallSlice& slice) {
    auto* page = static_cast<perf_event_mmap_page*>(ring);
    const auto head = std::atomic_ref(page->data_head).load(std::memory_order_acquire);
    const auto size = bytes - static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const auto* data = static_cast<const char*>(ring) + (bytes - size);
    const auto word = [&](std::uint64_t at) {
      std::uint64_t value = 0;  // of eight bytes, as all are, so none goes over the ring's end
      std::memcpy(&value, data + at % size, sizeof value);
      return value;
    };
    double inside_s = 0, since_s = from_s;
    unsigned calls = 0;
    bool lost = false;
    for (auto tail = page->data_tail; tail < head;) {
      const auto header = word(tail);
      const auto kind = static_cast<std::uint32_t>(header);
      lost = lost || kind == PERF_RECORD_LOST || header >> 48 == 0;
      if (kind == PERF_RECORD_SAMPLE) {
        const bool at_return = returns.contains(word(tail + 8));
        const double at_s = static_cast<double>(word(tail + 16)) / 1e9;
        if (!known) depth = at_return ? 1 : 0;
        known = true;
        if (!at_return && depth++ == 0) since_s = at_s;
        if (at_return && depth > 0 && --depth == 0) inside_s += at_s - since_s, ++calls;
      }
      tail += std::max<std::uint64_t>(header >> 48, 8);
    }
    std::atomic_ref(page->data_tail).store(head, std::memory_order_release);
    if (lost) known = false;
    if (!known) return;
    if (depth > 0) inside_s += to_s - since_s;
    slice.known = true;
    slice.calls = std::max(slice.calls, calls);
    slice.inside_s = std::max(slice.inside_s, std::min(inside_s, to_s - from_s));
  }
};

struct CallWatch::Rank {
  int rank = 0;
  std::vector<std::unique_ptr<Thread>> threads;
};

FunctionPlaces collectives_in(const std::string& file, const std::set<std::string>& names) {
  FunctionPlaces places{file, {}};
  const FileDescriptor opened(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  const auto headers = opened.get() < 0 ? std::vector<Elf64_Ehdr>{}
                                        : table_of<Elf64_Ehdr>(opened.get(), 0, sizeof(Elf64_Ehdr));
  if (headers.empty() || std::memcmp(headers[0].e_ident, ELFMAG, SELFMAG) != 0 ||
      headers[0].e_ident[EI_CLASS] != ELFCLASS64)
    return places;
  const auto& head = headers[0];
  const auto segments = table_of<Elf64_Phdr>(opened.get(), head.e_phoff,
                                             std::uint64_t{head.e_phnum} * sizeof(Elf64_Phdr));
  const auto sections = table_of<Elf64_Shdr>(opened.get(), head.e_shoff,
                                             std::uint64_t{head.e_shnum} * sizeof(Elf64_Shdr));
  std::set<std::uint64_t> offsets;  // MPI_X and PMPI_X are one
  for (const auto& section : sections) {
    if ((section.sh_type != SHT_DYNSYM && section.sh_type != SHT_SYMTAB) ||
        section.sh_link >= sections.size())
      continue;
    const auto& names_at = sections[section.sh_link];
    const auto texts = part_of(opened.get(), names_at.sh_offset, names_at.sh_size);
    for (const auto& symbol :
         table_of<Elf64_Sym>(opened.get(), section.sh_offset, section.sh_size)) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF ||
          symbol.st_name >= texts.size())
        continue;
      const auto end = texts.find('\0', symbol.st_name);
      if (end == std::string::npos ||
          !is_collective(std::string_view(texts).substr(symbol.st_name, end - symbol.st_name),
                         names))
        continue;
      if (const auto offset = file_offset(segments, symbol.st_value)) offsets.insert(*offset);
    }
  }
  places.offsets.assign(offsets.begin(), offsets.end());
  return places;
}

bool CallWatch::open_rank(const LiveRank& rank, const std::set<std::string>& names, int type) {
  auto one = std::make_unique<Rank>();
  one->rank = rank.rank;
  std::size_t events = 0;
  std::error_code gone;
  const auto files = code_files(rank.pid);
  std::vector<FunctionPlaces> all;
  for (const auto& file : files)
    if (auto places = collectives_in(file, names); !places.offsets.empty())
      all.push_back(std::move(places));
  if (all.empty()) {
    problem_ = fmt::format(
        "rank {} has no library whose calls of MPI or Gloo have names, so how "
        "long they take is not counted",
        rank.rank);
    return false;
  }
  for (fs::directory_iterator entry(fmt::format("/proc/{}/task", rank.pid), gone), end;
       !gone && entry != end; entry.increment(gone)) {
    const pid_t id = std::atoi(entry->path().filename().c_str());
    auto thread = std::make_unique<Thread>();
    for (const auto& places : all) {
      events += 2 * places.offsets.size();
      if (events > kMostEvents) break;
      const int error = thread->add(type, places, id);
      if (error == ESRCH) continue;  // it has ended
      if (error != 0) {
        problem_ = why_not(error);
        return false;
      }
    }
    if (thread->ring != nullptr) one->threads.push_back(std::move(thread));
  }
  ranks_.push_back(std::move(one));
  return true;
}

CallWatch::CallWatch(const std::vector<LiveRank>& ranks) {
  const auto type = file_text("/sys/bus/event_source/devices/uprobe/type");
  if (type.empty()) {
    problem_ = "this kernel has no uprobes, so how long ranks are in calls is not counted";
    return;
  }
  rlimit limit{};  // a probe is an open file
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  const auto names = calls_seen(ranks);
  for (const auto& rank : ranks)
    if (!open_rank(rank, names, std::atoi(type.c_str()))) {
      ranks_.clear();
      return;
    }
}

CallWatch::~CallWatch() = default;

void CallWatch::switch_all(bool on) {
  for (const auto& rank : ranks_)
    for (const auto& thread : rank->threads)
      for (const auto& probe : thread->probes)
        ioctl(probe.get(), on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
}

void CallWatch::watch(double seconds, std::vector<LiveRank>& ranks) {
  if (ranks_.empty()) return;
  const double asked_s = now_s();
  const double from_s = on_ ? last_s_ : asked_s;
  if (!on_) {
    for (const auto& rank : ranks_)
      for (const auto& thread : rank->threads) thread->known = false;
    switch_all(true);
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds * part_));
  on_ = part_ >= 1;
  if (!on_) switch_all(false);
  last_s_ = now_s();
  unsigned most_calls = 0;
  for (const auto& rank : ranks_) {
    CallSlice slice;
    slice.seconds = last_s_ - from_s;
    for (const auto& thread : rank->threads) thread->read(from_s, last_s_, slice);
    most_calls = std::max(most_calls, slice.calls);
    for (auto& known : ranks)
      if (known.rank == rank->rank) known.calls.push_back(slice);
  }
  const double rate = most_calls / std::max(last_s_ - from_s, 1e-3);
  part_ = std::clamp(kMostCost / (kCallCostS * std::max(rate, 1.0)), 0.001, 1.0);
  if (on_ && part_ < 1) {
    switch_all(false);
    on_ = false;
  }
  if (const double rest = seconds - (now_s() - asked_s); rest > 0)
    std::this_thread::sleep_for(std::chrono::duration<double>(rest));
}

}  // namespace dynamiccl
