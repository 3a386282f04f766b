#include "tests/tuner/transport/test_memory.hpp"

#include <dlfcn.h>

#include <cstring>
#include <stdexcept>
#include <string>

namespace dynamiccl::testing {
namespace {

constexpr std::size_t kGranule = std::size_t{2} << 20;

struct Driver {
  int (*create)(unsigned long long*, std::size_t, const void*, unsigned long long);
  int (*reserve)(unsigned long long*, std::size_t, std::size_t, unsigned long long,
                 unsigned long long);
  int (*map)(unsigned long long, std::size_t, std::size_t, unsigned long long, unsigned long long);
  int (*unmap)(unsigned long long, std::size_t);
  int (*free)(unsigned long long, std::size_t);
  int (*release)(unsigned long long);
  int (*left)();
};

template <typename Function>
void take(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(std::string("no ") + name);
}

const Driver& driver() {
  static const Driver loaded = [] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    Driver d{};
    take(library, "cuMemCreate", d.create);
    take(library, "cuMemAddressReserve", d.reserve);
    take(library, "cuMemMap", d.map);
    take(library, "cuMemUnmap", d.unmap);
    take(library, "cuMemAddressFree", d.free);
    take(library, "cuMemRelease", d.release);
    take(library, "fake_cuda_left", d.left);
    return d;
  }();
  return loaded;
}

}  // namespace

TestMemory::TestMemory(std::size_t bytes, bool device) {
  if (!device) {
    host_.resize(bytes);
    data_ = host_.data();
    return;
  }
  mapped_ = (bytes + kGranule - 1) / kGranule * kGranule;
  unsigned long long handle = 0;
  unsigned long long place = 0;
  const Driver& d = driver();
  if (d.create(&handle, mapped_, nullptr, 0) != 0 || d.reserve(&place, mapped_, 0, 0, 0) != 0 ||
      d.map(place, mapped_, 0, handle, 0) != 0 || d.release(handle) != 0)
    throw std::runtime_error("no memory of a GPU");
  data_ = reinterpret_cast<char*>(place);
}

TestMemory::~TestMemory() {
  if (mapped_ == 0) return;
  driver().unmap(reinterpret_cast<unsigned long long>(data_), mapped_);
  driver().free(reinterpret_cast<unsigned long long>(data_), mapped_);
}

void TestMemory::put(char* place, const std::vector<char>& from, std::size_t bytes) const {
  std::memcpy(place, from.data(), bytes);
}
void TestMemory::get(const char* place, std::vector<char>& to, std::size_t bytes) const {
  std::memcpy(to.data(), place, bytes);
}

int left_on_gpu() { return driver().left(); }

}  // namespace dynamiccl::testing
