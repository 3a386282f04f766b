#include <dlfcn.h>
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <climits>
#include <memory>
#include <thread>
#include <vector>

#include "workers/backends/mpi_algorithms.hpp"
#include "workers/backends/mpi_finish.hpp"
#include "workers/backends/mpi_threads.hpp"
#include "workers/backends/mpi_types.hpp"
#include "workers/device/device.hpp"
#include "workers/run/backend_table.hpp"

namespace dynamiccl {
namespace {

// What one call may count: below INT_MAX. Tests compile this file with a small number, so that the
// ways around it run without gigabytes.
#ifndef DYNAMICCL_MPI_MAX_COUNT
#define DYNAMICCL_MPI_MAX_COUNT (1U << 30)
#endif
constexpr std::size_t kMaxCount = DYNAMICCL_MPI_MAX_COUNT;

int int_count(std::size_t count) {
  DYN_ASSERT(count <= INT_MAX, "unsupported() must have refused this count");
  return static_cast<int>(count);
}

template <typename Part>
[[gnu::noinline]] void in_many_parts(std::size_t count, DataType type, const char* call,
                                     Part part) {
  for (std::size_t done = 0; done < count; done += kMaxCount)
    check(part(done * element_bytes(type), int_count(std::min(kMaxCount, count - done))), call);
}

/// `part(skipped bytes, count)` for each part that one call may count: one as a rule, and then
/// nothing else is done, as what stands before a call of 1 us shows in its time.
template <typename Part>
void in_parts(std::size_t count, DataType type, const char* call, Part part) {
  if (count > kMaxCount) return in_many_parts(count, type, call, part);
  check(part(std::size_t{0}, static_cast<int>(count)), call);
}

/// Requests by index, so that the interface needs no MPI type.
class RequestPool {
 public:
  MPI_Request& take(Request& handle) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(requests_.size()));
      requests_.push_back(MPI_REQUEST_NULL);
    }
    handle = Request{free_.back()};
    free_.pop_back();
    return requests_[static_cast<std::uint32_t>(handle)];
  }
  void wait(Request handle) {
    check(MPI_Wait(&requests_[static_cast<std::uint32_t>(handle)], MPI_STATUS_IGNORE), "MPI_Wait");
    free_.push_back(static_cast<std::uint32_t>(handle));
  }
  /// @returns whether it has ended within `limit`
  bool wait_within(Request handle, Micros limit) {
    const double end_s = MPI_Wtime() + limit.count() / 1e6;
    int done = 0;
    while (true) {
      check(MPI_Test(&requests_[static_cast<std::uint32_t>(handle)], &done, MPI_STATUS_IGNORE),
            "MPI_Test");
      if (done != 0) break;
      if (MPI_Wtime() > end_s) return false;
      std::this_thread::yield();  // those that are waited for may share the core
    }
    free_.push_back(static_cast<std::uint32_t>(handle));
    return true;
  }

 private:
  std::vector<MPI_Request> requests_;
  std::vector<std::uint32_t> free_;
};

#ifdef DYNAMICCL_WITH_CUDA_AWARE_MPI
/// Asks the library itself, whichever is loaded: a header would answer for the one it came with.
bool library_takes_gpu_memory() {
  using Query = int (*)();
  auto* query = reinterpret_cast<Query>(dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
  return query != nullptr && query() == 1;
}
#endif

class MpiCommunicator : public Communicator {
 public:
  explicit MpiCommunicator(const RunConfig& config) {
    check(MPI_Init_thread(nullptr, nullptr, thread_level_for(config), &thread_level_),
          "MPI_Init_thread");
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
    types_ = std::make_unique<MpiTypes>();
    algorithms_ = std::make_unique<MpiAlgorithms>();
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string library() const override;
  [[nodiscard]] std::string library_version() const override;
  [[nodiscard]] std::string thread_level() const override {
    return name_of_thread_level(thread_level_);
  }
  [[nodiscard]] std::optional<std::string> unsupported(const CallShape& shape) const override;
  [[nodiscard]] std::vector<std::string> algorithms(Collective collective) const override {
    return algorithms_->names(collective);
  }
  std::string choose(const CallShape& shape) override {
    const MpiChoice choice = algorithms_->choose(shape);
    comm_ = choice.comm;
    op_ = shape.op;
    return choice.applied;
  }

  void broadcast(void* data, std::size_t count, DataType type, int root) override;
  void reduce(const void* in, void* out, std::size_t count, DataType type, int root) override;
  void allreduce(const void* in, void* out, std::size_t count, DataType type) override;
  void allgather(const void* in, void* out, std::size_t count, DataType type) override;
  void reduce_scatter(const void* in, void* out, std::size_t count, DataType type) override;
  void gather(const void* in, void* out, std::size_t count, DataType type, int root) override;
  void alltoall(const void* in, void* out, std::size_t count, DataType type) override;
  void alltoallv(const void* in, void* out, const PairCounts& counts, DataType type) override;
  void allgatherv(const void* in, void* out, const PairCounts& counts, DataType type) override;
  void scatter(const void* in, void* out, std::size_t count, DataType type, int root) override;
  void library_barrier() override { check(MPI_Barrier(comm_), "MPI_Barrier"); }

  Request isend(const void* data, std::size_t bytes, int to, int tag) override;
  Request irecv(void* data, std::size_t bytes, int from, int tag) override;
  void wait(Request request) override { requests_.wait(request); }
  void wait_within(Request request, int peer, Micros limit) override {
    if (!requests_.wait_within(request, limit)) refuse_silence({peer}, limit);
  }
  int receive_any(void* data, std::size_t bytes, const std::vector<int>& from, int tag,
                  Micros limit) override;
  void progress() override { make_mpi_progress(); }

  void finalize() override {
    algorithms_->free();
    algorithms_.reset();  // Open MPI 4.1.4 crashes when MPI_T ends after MPI_Finalize.
    types_->free();
    check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    before_mpi_finalize();
    check(MPI_Finalize(), "MPI_Finalize");
    after_mpi_finalize();
  }
  [[noreturn]] void abort(int exit_code) override {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  [[nodiscard]] std::string version_text() const {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    check(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
    return {text.data(), static_cast<std::size_t>(length)};
  }

  int rank_ = 0;
  int size_ = 1;
  int thread_level_ = MPI_THREAD_SINGLE;
  MPI_Comm comm_ = MPI_COMM_WORLD;
  ReduceOp op_ = ReduceOp::sum;
  std::unique_ptr<MpiTypes> types_;
  std::unique_ptr<MpiAlgorithms> algorithms_;
  RequestPool requests_;
};

/// First line, with runs of white space as one blank: MPICH writes a table over many lines.
std::string MpiCommunicator::library() const {
  std::string line;
  for (const char c : version_text()) {
    if (c == '\n') break;
    const bool blank = c == ' ' || c == '\t';
    if (c == '\0' || (blank && line.ends_with(' '))) continue;
    line += blank ? ' ' : c;
  }
  return line;
}

std::string MpiCommunicator::library_version() const {
  const std::string text = library();
  const std::size_t begin = text.find_first_of("0123456789");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_first_of(", ", begin) - begin);
}

std::optional<std::string> MpiCommunicator::unsupported(const CallShape& shape) const {
  if (shape.count > kMaxCount && shape.collective != Collective::allreduce &&
      shape.collective != Collective::reduce && shape.collective != Collective::broadcast) {
    return fmt::format("{} elements per rank are more than an MPI count of this library takes ({})",
                       shape.count, kMaxCount);
  }
  if (shape.in_place && shape.collective == Collective::reduce_scatter) {
    return "MPI's in-place reduce_scatter leaves every result at the start of the buffer, not in "
           "its place";
  }
  return algorithms_->unsupported(shape);
}

void MpiCommunicator::broadcast(void* data, std::size_t count, DataType type, int root) {
  in_parts(count, type, "MPI_Bcast", [=, this](std::size_t skip, int n) {
    return MPI_Bcast(static_cast<std::byte*>(data) + skip, n, MpiTypes::type(type), root, comm_);
  });
}

void MpiCommunicator::reduce(const void* in, void* out, std::size_t count, DataType type,
                             int root) {
  in_parts(count, type, "MPI_Reduce", [=, this](std::size_t skip, int n) {
    void* to = out == nullptr ? nullptr : static_cast<std::byte*>(out) + skip;
    const void* from = static_cast<const std::byte*>(in) + skip;
    if (in == out && rank_ == root) from = MPI_IN_PLACE;
    return MPI_Reduce(from, to, n, MpiTypes::type(type), types_->operation(type, op_), root, comm_);
  });
}

void MpiCommunicator::allreduce(const void* in, void* out, std::size_t count, DataType type) {
  in_parts(count, type, "MPI_Allreduce", [=, this](std::size_t skip, int n) {
    const void* from = in == out ? MPI_IN_PLACE : static_cast<const std::byte*>(in) + skip;
    return MPI_Allreduce(from, static_cast<std::byte*>(out) + skip, n, MpiTypes::type(type),
                         types_->operation(type, op_), comm_);
  });
}

void MpiCommunicator::allgather(const void* in, void* out, std::size_t count, DataType type) {
  const void* own =
      static_cast<std::byte*>(out) + static_cast<std::size_t>(rank_) * count * element_bytes(type);
  const int n = int_count(count);
  check(MPI_Allgather(in == own ? MPI_IN_PLACE : in, n, MpiTypes::type(type), out, n,
                      MpiTypes::type(type), comm_),
        "MPI_Allgather");
}

void MpiCommunicator::reduce_scatter(const void* in, void* out, std::size_t count, DataType type) {
  check(MPI_Reduce_scatter_block(in, out, int_count(count), MpiTypes::type(type),
                                 types_->operation(type, op_), comm_),
        "MPI_Reduce_scatter_block");
}

void MpiCommunicator::gather(const void* in, void* out, std::size_t count, DataType type,
                             int root) {
  const int n = int_count(count);
  const void* from = in;
  if (rank_ == root && in == static_cast<std::byte*>(out) +
                                 static_cast<std::size_t>(rank_) * count * element_bytes(type)) {
    from = MPI_IN_PLACE;
  }
  check(MPI_Gather(from, n, MpiTypes::type(type), out, n, MpiTypes::type(type), root, comm_),
        "MPI_Gather");
}

void MpiCommunicator::alltoall(const void* in, void* out, std::size_t count, DataType type) {
  const int n = int_count(count);
  check(MPI_Alltoall(in == out ? MPI_IN_PLACE : in, n, MpiTypes::type(type), out, n,
                     MpiTypes::type(type), comm_),
        "MPI_Alltoall");
}

void MpiCommunicator::alltoallv(const void* in, void* out, const PairCounts& counts,
                                DataType type) {
  const MPI_Datatype element = MpiTypes::type(type);
  check(MPI_Alltoallv(in, counts.send.data(), counts.send_at.data(), element, out,
                      counts.receive.data(), counts.receive_at.data(), element, comm_),
        "MPI_Alltoallv");
}

void MpiCommunicator::allgatherv(const void* in, void* out, const PairCounts& counts,
                                 DataType type) {
  const MPI_Datatype element = MpiTypes::type(type);
  const auto own = static_cast<std::size_t>(rank_);
  const void* place = static_cast<std::byte*>(out) +
                      static_cast<std::size_t>(counts.receive_at[own]) * element_bytes(type);
  check(MPI_Allgatherv(in == place ? MPI_IN_PLACE : in, counts.receive[own], element, out,
                       counts.receive.data(), counts.receive_at.data(), element, comm_),
        "MPI_Allgatherv");
}

void MpiCommunicator::scatter(const void* in, void* out, std::size_t count, DataType type,
                              int root) {
  const int n = int_count(count);
  const bool in_place =
      rank_ == root && out == static_cast<const std::byte*>(in) +
                                  static_cast<std::size_t>(rank_) * count * element_bytes(type);
  check(MPI_Scatter(in, n, MpiTypes::type(type), in_place ? MPI_IN_PLACE : out, n,
                    MpiTypes::type(type), root, comm_),
        "MPI_Scatter");
}

/// Byte counts past the limit travel as blocks and a rest, in one message.
class ByteType {
 public:
  explicit ByteType(std::size_t bytes) {
    if (bytes <= kMaxCount) {
      count_ = static_cast<int>(bytes);
      return;
    }
    constexpr std::size_t kBlock = std::size_t{64} << 10;
    MPI_Datatype block = MPI_DATATYPE_NULL;
    check(MPI_Type_contiguous(static_cast<int>(kBlock), MPI_BYTE, &block), "MPI_Type_contiguous");
    std::array<int, 2> counts{static_cast<int>(bytes / kBlock), static_cast<int>(bytes % kBlock)};
    std::array<MPI_Aint, 2> offsets{0, static_cast<MPI_Aint>(bytes / kBlock * kBlock)};
    std::array<MPI_Datatype, 2> types{block, MPI_BYTE};
    check(MPI_Type_create_struct(2, counts.data(), offsets.data(), types.data(), &type_),
          "MPI_Type_create_struct");
    check(MPI_Type_commit(&type_), "MPI_Type_commit");
    check(MPI_Type_free(&block), "MPI_Type_free");
  }
  // A pending message keeps its type alive after it is freed.
  ~ByteType() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);
  }
  ByteType(const ByteType&) = delete;
  ByteType& operator=(const ByteType&) = delete;
  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] MPI_Datatype type() const { return type_; }

 private:
  int count_ = 1;
  MPI_Datatype type_ = MPI_BYTE;
};

Request MpiCommunicator::isend(const void* data, std::size_t bytes, int to, int tag) {
  const ByteType type(bytes);
  Request handle{};
  MPI_Request& request = requests_.take(handle);
  check(MPI_Isend(data, type.count(), type.type(), to, tag, MPI_COMM_WORLD, &request), "MPI_Isend");
  return handle;
}

Request MpiCommunicator::irecv(void* data, std::size_t bytes, int from, int tag) {
  const ByteType type(bytes);
  Request handle{};
  MPI_Request& request = requests_.take(handle);
  check(MPI_Irecv(data, type.count(), type.type(), from, tag, MPI_COMM_WORLD, &request),
        "MPI_Irecv");
  return handle;
}

int MpiCommunicator::receive_any(void* data, std::size_t bytes, const std::vector<int>& from,
                                 int tag, Micros limit) {
  const double end_s = MPI_Wtime() + limit.count() / 1e6;
  MPI_Status status;
  int there = 0;
  // Of several, those that are not asked for have nothing under way with this tag.
  const int source = from.size() == 1 ? from.front() : MPI_ANY_SOURCE;
  do {
    check(MPI_Iprobe(source, tag, MPI_COMM_WORLD, &there, &status), "MPI_Iprobe");
    if (there != 0) break;
    std::this_thread::yield();  // those that compute may share the core
  } while (MPI_Wtime() < end_s);
  if (there == 0) refuse_silence(from, limit);
  const ByteType type(bytes);
  check(MPI_Recv(data, type.count(), type.type(), status.MPI_SOURCE, tag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE),
        "MPI_Recv");
  return status.MPI_SOURCE;
}

}  // namespace

#ifdef DYNAMICCL_WITH_CUDA_AWARE_MPI
namespace {

/// MPI that takes GPU memory as it is.
class CudaAwareMpiCommunicator final : public MpiCommunicator {
 public:
  explicit CudaAwareMpiCommunicator(const RunConfig& config) : MpiCommunicator(config) {
    try {
      if (!library_takes_gpu_memory())
        throw Error(ErrorKind::environment,
                    fmt::format("{} was not built to take GPU memory (MPIX_Query_cuda_support says "
                                "no): scripts/build_cuda_openmpi.sh builds one that does",
                                library()));
      device_ = open_device(planned_gpu(config.gpu_of_rank, rank(), rank()));
    } catch (const Error& error) {
      unusable_ = error.what();
    }
    // One rank without a GPU leaves every cell out; otherwise the others would wait for it.
    const double failed = sum_over_ranks(*this, {unusable_.empty() ? 0.0 : 1.0})[0];
    if (failed > 0 && unusable_.empty())
      unusable_ = fmt::format("{} of {} ranks have no usable GPU", failed, size());
  }

  [[nodiscard]] std::optional<std::string> unsupported(const CallShape& shape) const override {
    return unusable_.empty() ? MpiCommunicator::unsupported(shape) : unusable_;
  }
  [[nodiscard]] bool works_on_gpu() const override { return true; }
  [[nodiscard]] Device* device() override { return device_.get(); }

 private:
  std::unique_ptr<Device> device_;
  std::string unusable_;
};

}  // namespace

std::unique_ptr<Communicator> connect_cuda_aware_mpi(const RunConfig& config) {
  return std::make_unique<CudaAwareMpiCommunicator>(config);
}
#endif

std::unique_ptr<Communicator> connect_mpi(const RunConfig& config) {
  return std::make_unique<MpiCommunicator>(config);
}

}  // namespace dynamiccl
