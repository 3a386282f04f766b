#include "plugin/agreement/region.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <new>

#include "core/vocabulary/file_limit.hpp"

namespace dynamiccl {
namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(RegionHeader) % alignof(RankSlot) == 0);

constexpr unsigned kMostRanks = 65536;

std::size_t bytes_for(unsigned ranks) { return sizeof(RegionHeader) + ranks * sizeof(RankSlot); }

std::string failure(const char* what, const std::string& path) {
  return std::string(what) + " " + path + ": " + std::strerror(errno);
}

/// Of this host's kernel since it started; 0: not known.
std::uint64_t host_number() {
  std::array<char, 36> id{};
  const int file = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  const ssize_t bytes = file < 0 ? 0 : ::read(file, id.data(), id.size());
  if (file >= 0) ::close(file);
  std::uint64_t number = 0;
  for (ssize_t i = 0; i < bytes; ++i)
    number = number * 31 + static_cast<unsigned char>(id[static_cast<std::size_t>(i)]);
  return number;
}

/// All else is zeros already: the file is new.
void fill(RegionHeader& header, const Region::Spec& spec) {
  header.magic = kRegionMagic;
  header.version = kRegionVersion;
  header.ranks = spec.ranks;
  header.communicator = spec.communicator;
  header.nodes = spec.nodes;
  header.host = host_number();
  if (spec.start == nullptr) return;
  for (PublishedTable& published : header.tables)
    published = {checksum_of(*spec.start), 0, 0, *spec.start};
  // Acknowledged by ranks before their first call.
  header.word.store(pack({1, ProposalState::prepared, true, 0}), std::memory_order_release);
}

/// @returns false when the file could not be made and filled
bool make_file(const std::string& path, const std::string& folder, const Region::Spec& spec,
               std::string& problem) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) {
    problem = failure("cannot make", path);
    return false;
  }
  // Ranks of another container may run as another user: who may add files to the folder may write
  // to this one, nobody else. A writer could cut it, and its readers would die of a bus error.
  struct stat status {};
  constexpr mode_t kWriters = S_IWUSR | S_IWGRP | S_IWOTH;
  if (stat(folder.c_str(), &status) == 0) {
    const mode_t writers = status.st_mode & kWriters;
    static_cast<void>(fchmod(file, S_IRUSR | S_IWUSR | writers | (writers << 1)));
  }
  const std::size_t bytes = bytes_for(spec.ranks);
  // Space now, not a bus error later.
  const FileLimitSignal held;
  errno = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  void* memory =
      errno != 0 ? MAP_FAILED
                 : mmap(nullptr, sizeof(RegionHeader), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) problem = failure("cannot fill", path);
  if (memory != MAP_FAILED) {
    fill(*static_cast<RegionHeader*>(memory), spec);
    munmap(memory, sizeof(RegionHeader));
  }
  ::close(file);
  return memory != MAP_FAILED;
}

}  // namespace

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::string Region::path_of(const std::string& folder, std::uint64_t communicator) {
  std::array<char, 40> name{};
  std::snprintf(name.data(), name.size(), "/comm-%016" PRIx64 ".region", communicator);
  return folder + name.data();
}

std::unique_ptr<Region> Region::map(int file, std::string& problem) noexcept {
  struct stat status {};
  const bool known = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  const auto bytes = static_cast<std::size_t>(known ? status.st_size : 0);
  void* memory = bytes < sizeof(RegionHeader)
                     ? MAP_FAILED
                     : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    problem = "it is no file, too short, or cannot be mapped";
    ::close(file);
    return nullptr;
  }
  auto* region = new (std::nothrow) Region(memory, bytes, file);
  if (region == nullptr) {
    munmap(memory, bytes);
    ::close(file);
    problem = "out of memory";
    return nullptr;
  }
  std::unique_ptr<Region> held(region);
  const RegionHeader& header = held->header();
  const std::uint32_t ranks = header.ranks;
  if (header.magic != kRegionMagic || header.version != kRegionVersion || ranks == 0 ||
      ranks > kMostRanks || bytes != bytes_for(ranks)) {
    problem = "it is no region of this version";
    return nullptr;
  }
  held->ranks_ = ranks;
  return held;
}

std::unique_ptr<Region> Region::open(const std::string& path, std::string& problem) noexcept {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) {
    problem = failure("cannot open", path);
    return nullptr;
  }
  auto region = map(file, problem);
  if (region == nullptr) problem = path + ": " + problem;
  return region;
}

std::unique_ptr<Region> Region::open_or_make(const std::string& folder, const Spec& spec,
                                             std::string& problem) noexcept {
  try {
    if (spec.ranks == 0 || spec.ranks > kMostRanks) {
      problem = "a communicator of " + std::to_string(spec.ranks) + " ranks";
      return nullptr;
    }
    const std::string path = path_of(folder, spec.communicator);
    if (access(path.c_str(), F_OK) != 0) {
      // Process numbers repeat over containers; the address and the time do not repeat with them.
      timespec now{};
      clock_gettime(CLOCK_MONOTONIC, &now);
      const std::string draft = path + "." + std::to_string(getpid()) + "." +
                                std::to_string(now.tv_nsec) + "." +
                                std::to_string(reinterpret_cast<std::uintptr_t>(&now) >> 4);
      if (!make_file(draft, folder, spec, problem)) {
        unlink(draft.c_str());
        return nullptr;
      }
      // The first one wins; the others use its file.
      const bool linked = link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST;
      if (!linked) problem = failure("cannot link", path);
      unlink(draft.c_str());
      if (!linked) return nullptr;
    }
    auto region = open(path, problem);
    if (region != nullptr && region->ranks() != spec.ranks) {
      problem = path + ": it is of another communicator";
      return nullptr;
    }
    if (region != nullptr && region->header().host != host_number()) {
      problem = path + ": ranks of another host made it; settings per call are for one host";
      return nullptr;
    }
    return region;
  } catch (const std::exception& error) {
    return nullptr;  // out of memory for a path
  }
}

Region::~Region() {
  munmap(memory_, bytes_);
  ::close(file_);
}

RankSlot& Region::slot(std::size_t index) const {
  return reinterpret_cast<RankSlot*>(static_cast<char*>(memory_) + sizeof(RegionHeader))[index];
}

RankSlot* Region::claim() const {
  const std::uint32_t index = header().claimed.fetch_add(1);
  return index < ranks() ? &slot(index) : nullptr;
}

bool Region::all_acked(std::uint32_t epoch) const {
  for (std::size_t i = 0; i < ranks(); ++i)
    if (slot(i).acked.load(std::memory_order_acquire) != epoch) return false;
  return true;
}

void Region::publish(const CallTable& table, std::uint32_t epoch) const {
  PublishedTable& published = header().tables[epoch & 1];
  // Nothing of the table may be written before the old sum is gone, nor after the new one is there.
  const std::atomic_ref checksum(published.checksum);
  checksum.exchange(0, std::memory_order_acq_rel);
  published.epoch = epoch;
  published.table = table;
  checksum.store(checksum_of(table), std::memory_order_release);
}

bool Region::copy_table(const Proposal& proposal, CallTable& to) const {
  const PublishedTable& published = header().tables[proposal.epoch & 1];
  std::memcpy(&to, &published.table, sizeof(to));
  const std::uint32_t meant = proposal.start ? 0 : proposal.epoch;
  return published.epoch == meant && published.checksum == checksum_of(to) && is_sound(to);
}

bool Region::lock_leadership() const { return flock(file_, LOCK_EX | LOCK_NB) == 0; }

}  // namespace dynamiccl
