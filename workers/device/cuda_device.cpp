#include <array>

#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "workers/data/data_hash.hpp"
#include "workers/device/cuda_check.hpp"
#include "workers/device/device.hpp"
#include "workers/device/kernels.hpp"

namespace dynamiccl {
namespace {

kernels::Format format_of(DataType type) {
  switch (type) {
    case DataType::float32:
      return kernels::Format::float32;
    case DataType::float64:
      return kernels::Format::float64;
    case DataType::float16:
      return kernels::Format::float16;
    case DataType::bfloat16:
      return kernels::Format::bfloat16;
    case DataType::int32:
      return kernels::Format::int32;
  }
  return kernels::Format::float32;
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {
    check_cuda(cudaSetDevice(index_), "cudaSetDevice");
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, index_), "cudaGetDeviceProperties");
    name_ = properties.name;
    pci_ = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID,
                       properties.pciDeviceID);
    multiprocessors_ = properties.multiProcessorCount;
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
               "cudaStreamCreateWithFlags");
    found_ = allocate(sizeof(kernels::Found));
  }
  ~CudaDevice() override { cudaStreamDestroy(stream_); }

  void enter_thread() override { check_cuda(cudaSetDevice(index_), "cudaSetDevice"); }
  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::string pci() const override { return pci_; }
  [[nodiscard]] int multiprocessors() const override { return multiprocessors_; }

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    void* memory = nullptr;
    if (bytes == 0) return nullptr;
    const cudaError_t code = cudaMalloc(&memory, bytes);
    if (code == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      std::size_t free = 0;
      std::size_t total = 0;
      cudaMemGetInfo(&free, &total);
      throw Error(ErrorKind::environment,
                  fmt::format("{} of memory on {} cannot be had: {} of {} are free; measure "
                              "smaller sizes or end what else uses this GPU",
                              format_bytes(Bytes(bytes)), name_, format_bytes(Bytes(free)),
                              format_bytes(Bytes(total))));
    }
    check_cuda(code, "cudaMalloc");
    std::shared_ptr<std::byte> owner(static_cast<std::byte*>(memory),
                                     [](std::byte* at) { cudaFree(at); });
    check_cuda(cudaMemsetAsync(memory, 0, bytes, stream_), "cudaMemsetAsync");
    wait();
    return owner;
  }

  std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes) override {
    void* memory = nullptr;
    if (bytes == 0) return nullptr;
    check_cuda(cudaMallocHost(&memory, bytes), "cudaMallocHost");
    return {static_cast<std::byte*>(memory), [](std::byte* at) { cudaFreeHost(at); }};
  }

  void copy_to_host(void* host, const void* device, std::size_t bytes) override {
    check_cuda(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_),
               "cudaMemcpyAsync to the host");
    wait();
  }
  void copy_to_device(void* device, const void* host, std::size_t bytes) override {
    check_cuda(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_),
               "cudaMemcpyAsync to the GPU");
    wait();
  }

  void fill(const DataSource& source, void* out, int rank, std::uint64_t first,
            std::size_t count) override {
    check_cuda(kernels::fill(out, format_of(source.type()), rank_key(source.key(), rank), first,
                             count, source.range(), stream_),
               "filling a buffer on the GPU");
    wait();
  }

  DataVerdict verify(const DataSource& source, const void* out,
                     const std::vector<ExpectedPart>& parts) override {
    DataVerdict verdict;
    for (const ExpectedPart& part : parts)
      verdict += verify_part(source, static_cast<const std::byte*>(out), part);
    return verdict;
  }

  void poison(void* out, std::size_t bytes) override {
    check_cuda(cudaMemsetAsync(out, 0xFF, bytes, stream_), "cudaMemsetAsync");
    wait();
  }

  void multiply_for(std::chrono::milliseconds time) override {
    constexpr unsigned kOrder = 2048;
    constexpr std::uint32_t kRange = 64;
    constexpr std::size_t kBytes = std::size_t{kOrder} * kOrder * sizeof(float);
    static_assert(kOrder % kernels::kTile == 0);
    if (matrices_ == nullptr) {
      matrices_ = allocate(3 * kBytes);
      // Products of zeros take less power than a job's.
      check_cuda(kernels::fill(matrices_.get(), kernels::Format::float32, 1, 0,
                               2 * kBytes / sizeof(float), kRange, stream_),
                 "filling matrices");
    }
    auto* a = reinterpret_cast<float*>(matrices_.get());
    const auto end = std::chrono::steady_clock::now() + time;
    do {
      check_cuda(kernels::multiply(a, a + kBytes / sizeof(float), a + 2 * kBytes / sizeof(float),
                                   kOrder, stream_),
                 "multiplying matrices");
      wait();
    } while (std::chrono::steady_clock::now() < end);
  }

 private:
  void wait() { check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  DataVerdict verify_part(const DataSource& source, const std::byte* out,
                          const ExpectedPart& part) {
    const std::size_t width = element_bytes(source.type());
    const std::byte* at = out + part.offset * width;
    auto* on_device = reinterpret_cast<kernels::Found*>(found_.get());
    kernels::Found found{0, ~0ULL};
    copy_to_device(on_device, &found, sizeof found);
    check_cuda(kernels::compare(
                   at, format_of(source.type()), source.key(), source.range(),
                   {part.first, part.count, part.first_rank, part.last_rank, part.skipped_rank},
                   on_device, stream_),
               "comparing a buffer on the GPU");
    copy_to_host(&found, on_device, sizeof found);
    DataVerdict verdict{part.count, found.wrong, ""};
    if (found.wrong == 0) return verdict;
    std::array<std::byte, 8> got{};
    copy_to_host(got.data(), at + found.first_index * width, width);
    verdict.first_wrong = describe_wrong(source, part, found.first_index, got.data());
    return verdict;
  }

  int index_;
  std::string name_;
  std::string pci_;
  int multiprocessors_ = 0;
  cudaStream_t stream_ = nullptr;
  std::shared_ptr<std::byte> found_;
  std::shared_ptr<std::byte> matrices_;  ///< of multiply_for; nullptr until it is called
};

}  // namespace

std::unique_ptr<Device> open_device(int index) {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    throw Error(ErrorKind::environment,
                fmt::format("no usable GPU: {}; a container must be given its devices and the "
                            "driver's libraries",
                            code == cudaSuccess ? "CUDA sees none" : cudaGetErrorString(code)));
  }
  if (count == 1) return std::make_unique<CudaDevice>(0);
  if (index < 0 || index >= count) {
    throw Error(
        ErrorKind::environment,
        fmt::format("GPU {} was asked for, this process sees GPUs 0 to {}", index, count - 1));
  }
  return std::make_unique<CudaDevice>(index);
}

std::unique_ptr<Device> open_device_at(const std::string& pci) {
  int index = 0;
  check_cuda(cudaDeviceGetByPCIBusId(&index, pci.c_str()), ("finding the GPU at " + pci).c_str());
  return std::make_unique<CudaDevice>(index);
}

}  // namespace dynamiccl
