#include "tuner/transport/ring.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "core/vocabulary/file_limit.hpp"
#include "tuner/transport/control_group.hpp"
#include "tuner/transport/settings.hpp"

namespace dynamiccl::transport {
namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
constexpr std::size_t kPage = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::size_t kMostCellBytes = std::size_t{4} << 20;

std::size_t rounded(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// @returns 0 and a file of that size whose memory is taken, or why not
int fill(int file, std::size_t bytes) {
  // Its memory now, not a signal later.
  const FileLimitSignal held;
  const int error = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  if (error != 0) return error;
  return fcntl(file, F_ADD_SEALS, kSeals) == 0 ? 0 : errno;
}

}  // namespace

std::size_t Ring::bytes_for(unsigned cells, std::size_t cell_bytes) {
  return rounded(sizeof(Control)) + cells * cell_bytes;
}

std::unique_ptr<Ring> Ring::make(unsigned cells, std::size_t cell_bytes, std::string& problem,
                                 std::uint32_t first_cell) {
  std::unique_ptr<Ring> ring(new Ring);
  ring->cells_ = cells;
  ring->cell_bytes_ = cell_bytes;
  ring->bytes_ = bytes_for(cells, cell_bytes);
  ring->file_ = FileDescriptor(memfd_create("dynamiccl-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int made = ring->file_.valid() ? 0 : errno;
  const std::string what =
      "cannot make " + std::to_string(ring->bytes_ >> 10) + " KiB of memory for a connection";
  constexpr const char* kAdvice =
      "Raise this container's memory limit (docker run --memory), or lower "
      "DYNAMICCL_TRANSPORT_CELL_KIB or NCCL_MAX_CTAS.";
  // The kernel refuses no memory beyond a group's limit: it kills who takes it.
  if (const auto room = memory_room(); ring->file_.valid() && room && *room < ring->bytes_) {
    problem = what + ": " + std::to_string(*room >> 10) + " KiB are left of its limit. " + kAdvice;
    return nullptr;
  }
  if (const int error = made != 0 ? made : fill(ring->file_.get(), ring->bytes_); error != 0) {
    problem = what + errno_text(error) + advice_for(error, kAdvice);
    return nullptr;
  }
  if (!ring->map_file(problem)) return nullptr;
  for (unsigned i = 0; i < cells; ++i)
    ring->cell(first_cell + i).turn.store(first_cell + i, std::memory_order_relaxed);
  return ring;
}

std::unique_ptr<Ring> Ring::map(FileDescriptor file, unsigned cells, std::size_t cell_bytes,
                                std::string& problem) {
  std::unique_ptr<Ring> ring(new Ring);
  problem = "the peer's ring is not one of this transport's";
  if (cells < 2 || cells > kMostCells || (cells & (cells - 1)) != 0 || cell_bytes == 0 ||
      cell_bytes > kMostCellBytes || cell_bytes % 64 != 0)
    return nullptr;
  ring->cells_ = cells;
  ring->cell_bytes_ = cell_bytes;
  ring->bytes_ = bytes_for(cells, cell_bytes);
  struct stat status {};
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(file.get(), &status) != 0 ||
      static_cast<std::size_t>(status.st_size) != ring->bytes_)
    return nullptr;
  ring->file_ = std::move(file);
  if (!ring->map_file(problem)) return nullptr;
  ring->forget_file();
  return ring;
}

bool Ring::map_file(std::string& problem) {
  void* memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file_.get(), 0);
  if (memory == MAP_FAILED) {
    problem = "cannot map the ring of a connection" + errno_text(errno);
    return false;
  }
  // Children of this process, which may be many and live long, have no use for it.
  madvise(memory, bytes_, MADV_DONTFORK);
  control_ = static_cast<Control*>(memory);
  data_ = static_cast<std::byte*>(memory) + rounded(sizeof(Control));
  return true;
}

Ring::~Ring() {
  if (control_ != nullptr) munmap(control_, bytes_);
}

}  // namespace dynamiccl::transport
