// A stand-in for CUDA's driver (libcuda.so.1) for machines without GPUs: "memory of a GPU" is
// memory that processes can lend each other by file descriptor, as the real one can, and streams
// are threads, so that copies end later than asked. What is not given back is counted.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace dynamiccl::transport {
struct CudaAccess;  // the callers' type: a checked call of a function compares it
}

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kGood = 0;
constexpr int kInvalid = 1;

struct Allocation {
  int file;
  std::size_t bytes;
  int users;
};
struct Stream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;
  bool ends = false;
  bool busy = false;
  std::thread thread;
};

std::mutex g_mutex;
std::map<unsigned long long, Allocation> g_allocations;
std::map<unsigned long long, std::pair<std::size_t, unsigned long long>>
    g_places;  // mapped: bytes, allocation
std::map<void*, std::size_t> g_registered;
std::atomic<int> g_streams{0};
unsigned long long g_last = 0;
int g_context = 0;

void run(Stream& stream) {
  std::unique_lock<std::mutex> lock(stream.mutex);
  for (;;) {
    stream.changed.wait(lock, [&] { return stream.ends || !stream.work.empty(); });
    if (stream.work.empty()) return;
    auto work = std::move(stream.work.front());
    stream.work.pop_front();
    stream.busy = true;
    lock.unlock();
    work();
    lock.lock();
    stream.busy = false;
    stream.changed.notify_all();
  }
}
int enqueue(void* stream, std::function<void()> work) {
  auto& s = *static_cast<Stream*>(stream);
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.work.push_back(std::move(work));
  s.changed.notify_all();
  return kGood;
}
void release(unsigned long long handle) {
  const auto place = g_allocations.find(handle);
  if (place == g_allocations.end() || --place->second.users != 0) return;
  close(place->second.file);
  g_allocations.erase(place);
}

}  // namespace

/// Allocations, mappings, registrations and streams that are not given back.
EXPORTED int fake_cuda_left() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  return static_cast<int>(g_allocations.size() + g_places.size() + g_registered.size()) +
         g_streams.load();
}

EXPORTED int cuGetErrorName(int result, const char** name) {
  *name = result == kGood ? "CUDA_SUCCESS" : "CUDA_ERROR_INVALID_VALUE";
  return kGood;
}
EXPORTED int cuCtxGetCurrent(void** context) {
  *context = &g_context;
  return kGood;
}
EXPORTED int cuCtxPushCurrent_v2(void*) { return kGood; }
EXPORTED int cuCtxPopCurrent_v2(void**) { return kGood; }
EXPORTED int cuCtxGetDevice(int* device) {
  *device = 0;
  return kGood;
}
EXPORTED int cuDeviceGetAttribute(int* value, int, int) {
  *value = 1;
  return kGood;
}
EXPORTED int cuModuleGetLoadingMode(int* mode) {
  const char* text = std::getenv("CUDA_MODULE_LOADING");
  *mode = text != nullptr && std::strcmp(text, "EAGER") == 0 ? 1 : 2;
  return kGood;
}
EXPORTED int cuThreadExchangeStreamCaptureMode(int*) { return kGood; }
EXPORTED int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return kGood;
}

EXPORTED int cuMemCreate(unsigned long long* handle, std::size_t bytes, const void*,
                         unsigned long long) {
  const int file = memfd_create("fake-gpu", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return kInvalid;
  const std::lock_guard<std::mutex> lock(g_mutex);
  *handle = ++g_last;
  g_allocations[*handle] = {file, bytes, 1};
  return kGood;
}
EXPORTED int cuMemRelease(unsigned long long handle) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  release(handle);
  return kGood;
}
EXPORTED int cuMemAddressReserve(unsigned long long* place, std::size_t bytes, std::size_t,
                                 unsigned long long, unsigned long long) {
  void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return kInvalid;
  *place = reinterpret_cast<unsigned long long>(memory);
  return kGood;
}
EXPORTED int cuMemAddressFree(unsigned long long place, std::size_t bytes) {
  return munmap(reinterpret_cast<void*>(place), bytes) == 0 ? kGood : kInvalid;
}
EXPORTED int cuMemMap(unsigned long long place, std::size_t bytes, std::size_t,
                      unsigned long long handle, unsigned long long) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  const auto allocation = g_allocations.find(handle);
  if (allocation == g_allocations.end() || bytes > allocation->second.bytes) return kInvalid;
  void* memory = mmap(reinterpret_cast<void*>(place), bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_FIXED, allocation->second.file, 0);
  if (memory == MAP_FAILED) return kInvalid;
  ++allocation->second.users;
  g_places[place] = {bytes, handle};
  return kGood;
}
EXPORTED int cuMemUnmap(unsigned long long place, std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  const auto mapped = g_places.find(place);
  if (mapped == g_places.end()) return kInvalid;
  mmap(reinterpret_cast<void*>(place), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
       -1, 0);
  release(mapped->second.second);
  g_places.erase(mapped);
  return kGood;
}
EXPORTED int cuMemSetAccess(unsigned long long, std::size_t,
                            const dynamiccl::transport::CudaAccess*, std::size_t) {
  return std::getenv("FAKE_CUDA_NO_ACCESS") == nullptr ? kGood : kInvalid;
}
EXPORTED int cuMemGetAddressRange_v2(unsigned long long* base, std::size_t* bytes,
                                     unsigned long long place) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  auto mapped = g_places.upper_bound(place);
  if (mapped == g_places.begin()) return kInvalid;
  --mapped;
  if (place - mapped->first >= mapped->second.first) return kInvalid;
  *base = mapped->first;
  *bytes = mapped->second.first;
  return kGood;
}
EXPORTED int cuMemRetainAllocationHandle(unsigned long long* handle, void* place) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  const auto mapped = g_places.find(reinterpret_cast<unsigned long long>(place));
  if (mapped == g_places.end()) return kInvalid;
  *handle = mapped->second.second;
  ++g_allocations[*handle].users;
  return kGood;
}
EXPORTED int cuMemExportToShareableHandle(void* file, unsigned long long handle, int,
                                          unsigned long long) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  const auto allocation = g_allocations.find(handle);
  if (allocation == g_allocations.end()) return kInvalid;
  const int copy = fcntl(allocation->second.file, F_DUPFD_CLOEXEC, 0);
  std::memcpy(file, &copy, sizeof copy);
  return kGood;
}
EXPORTED int cuMemImportFromShareableHandle(unsigned long long* handle, void* file, int) {
  const int copy =
      fcntl(static_cast<int>(reinterpret_cast<std::intptr_t>(file)), F_DUPFD_CLOEXEC, 0);
  const off_t bytes = copy < 0 ? -1 : lseek(copy, 0, SEEK_END);
  if (bytes < 0) return kInvalid;
  const std::lock_guard<std::mutex> lock(g_mutex);
  *handle = ++g_last;
  g_allocations[*handle] = {copy, static_cast<std::size_t>(bytes), 1};
  return kGood;
}

EXPORTED int cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  return g_registered.emplace(memory, bytes).second ? kGood : kInvalid;
}
EXPORTED int cuMemHostUnregister(void* memory) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  return g_registered.erase(memory) == 1 ? kGood : kInvalid;
}
EXPORTED int cuMemHostGetDevicePointer_v2(unsigned long long* place, void* memory, unsigned) {
  *place = reinterpret_cast<unsigned long long>(memory);
  return kGood;
}

EXPORTED int cuStreamCreateWithPriority(void** stream, unsigned, int) {
  auto* made = new Stream;
  made->thread = std::thread([made] { run(*made); });
  ++g_streams;
  *stream = made;
  return kGood;
}
EXPORTED int cuStreamDestroy_v2(void* stream) {
  auto* gone = static_cast<Stream*>(stream);
  {
    const std::lock_guard<std::mutex> lock(gone->mutex);
    gone->ends = true;
    gone->changed.notify_all();
  }
  gone->thread.join();
  delete gone;
  --g_streams;
  return kGood;
}
EXPORTED int cuStreamSynchronize(void* stream) {
  auto& s = *static_cast<Stream*>(stream);
  std::unique_lock<std::mutex> lock(s.mutex);
  s.changed.wait(lock, [&] { return s.work.empty() && !s.busy; });
  return kGood;
}
EXPORTED int cuMemcpyAsync(unsigned long long to, unsigned long long from, std::size_t bytes,
                           void* stream) {
  return enqueue(stream, [to, from, bytes] {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  });
}
EXPORTED int cuStreamWriteValue32_v2(void* stream, unsigned long long place, unsigned value,
                                     unsigned) {
  return enqueue(stream, [place, value] {
    reinterpret_cast<std::atomic<unsigned>*>(place)->store(value, std::memory_order_release);
  });
}
