#include "plugin/agreement/call_stream.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "core/vocabulary/file_limit.hpp"
#include "plugin/agreement/folder_files.hpp"

namespace dynamiccl {
namespace {

static_assert(sizeof(CallStreamHeader) % alignof(CallRecord) == 0);

std::size_t stream_bytes(std::uint32_t capacity) {
  return sizeof(CallStreamHeader) + std::size_t{capacity} * sizeof(CallRecord);
}

std::string cannot(const char* what, const std::string& path) {
  return std::string(what) + " " + path + ": " + std::strerror(errno);
}

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

CallRecord* CallStream::records() const {
  return reinterpret_cast<CallRecord*>(static_cast<char*>(memory_) + sizeof(CallStreamHeader));
}

std::unique_ptr<CallStream> CallStream::make(const std::string& folder, const Spec& spec,
                                             std::string& problem) noexcept {
  try {
    std::array<char, 64> name{};
    // The time tells two communicators of one id apart, of which the second was made after the
    // first had gone.
    std::snprintf(name.data(), name.size(), "/calls-%016" PRIx64 "-%d-%" PRIx64 ".ring",
                  spec.communicator, spec.rank, static_cast<std::uint64_t>(now_ns()));
    const std::string path = folder + name.data();
    const std::string draft = path + ".new";
    const int file = ::open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0) {
      problem = cannot("cannot make", draft);
      return nullptr;
    }
    // Space now, not a bus error later.
    const FileLimitSignal held;
    errno = posix_fallocate(file, 0, static_cast<off_t>(stream_bytes(kCapacity)));
    void* memory = errno != 0 ? MAP_FAILED
                              : mmap(nullptr, stream_bytes(kCapacity), PROT_READ | PROT_WRITE,
                                     MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) problem = cannot("cannot fill", draft);
    ::close(file);
    std::unique_ptr<CallStream> stream;
    if (memory != MAP_FAILED) {
      auto& header = *static_cast<CallStreamHeader*>(memory);
      header.magic = kCallStreamMagic;
      header.version = kCallStreamVersion;
      header.capacity = kCapacity;
      header.communicator = spec.communicator;
      header.rank = spec.rank;
      header.ranks = spec.ranks;
      header.nodes = spec.nodes;
      header.process = getpid();
      header.process_key = spec.process_key;
      header.opened_ns = now_ns();
      stream.reset(new CallStream(memory, stream_bytes(kCapacity), kCapacity));
      // Readers look for the whole name alone.
      if (rename(draft.c_str(), path.c_str()) != 0) {
        problem = cannot("cannot name", path);
        stream.reset();
      }
    }
    if (stream == nullptr) unlink(draft.c_str());
    return stream;
  } catch (const std::exception&) {
    return nullptr;  // out of memory for a path
  }
}

std::unique_ptr<CallStream> CallStream::open(const std::string& path,
                                             std::string& problem) noexcept {
  try {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) {
      problem = cannot("cannot open", path);
      return nullptr;
    }
    struct stat status {};
    const bool whole = fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                       status.st_size == static_cast<off_t>(stream_bytes(kCapacity));
    void* memory =
        whole ? mmap(nullptr, stream_bytes(kCapacity), PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
    ::close(file);
    if (memory == MAP_FAILED) {
      problem = path + ": it has another size than a stream of calls";
      return nullptr;
    }
    std::unique_ptr<CallStream> stream(new CallStream(memory, stream_bytes(kCapacity), kCapacity));
    const CallStreamHeader& header = *static_cast<const CallStreamHeader*>(memory);
    if (header.magic != kCallStreamMagic || header.version != kCallStreamVersion ||
        header.capacity != kCapacity) {
      problem = path + ": it is no stream of calls of this version";
      return nullptr;
    }
    return stream;
  } catch (const std::exception&) {
    return nullptr;
  }
}

CallStream::~CallStream() { munmap(memory_, bytes_); }

void CallStream::keep_costs(std::size_t function, std::size_t bin, const float* costs,
                            int algorithms, int protocols) noexcept {
  auto& cell = own().predicted[function][bin];
  cell.fill(-1.0F);
  const auto width = static_cast<std::size_t>(std::clamp(protocols, 0, 3));
  for (std::size_t a = 0; a < static_cast<std::size_t>(std::clamp(algorithms, 0, 7)); ++a)
    for (std::size_t p = 0; p < width; ++p)
      cell[a * 3 + p] = costs[a * static_cast<std::size_t>(protocols) + p];
  own().known[function].fetch_or(std::uint64_t{1} << bin, std::memory_order_release);
}

std::vector<CallRecord> CallStream::read(std::uint64_t& from) const {
  const std::uint64_t end = header().written.load(std::memory_order_acquire);
  // A damaged count must not make anybody wait or run out of memory.
  if (end < from || end - from > capacity_) from = end > capacity_ ? end - capacity_ : 0;
  std::vector<CallRecord> calls;
  calls.reserve(static_cast<std::size_t>(end - from));
  for (std::uint64_t n = from; n < end; ++n) calls.push_back(records()[n % capacity_]);
  // What was overwritten meanwhile is torn.
  const std::uint64_t after = header().written.load(std::memory_order_acquire);
  const std::uint64_t torn = after > from + capacity_ ? after - capacity_ - from : 0;
  calls.erase(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(
                                                 std::min<std::uint64_t>(torn, calls.size())));
  from = end;
  return calls;
}

std::vector<std::string> call_streams_in(const std::string& folder) {
  return files_in(folder, "calls-", ".ring");
}

}  // namespace dynamiccl
