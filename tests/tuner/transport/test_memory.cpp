#include "tests/tuner/transport/test_memory.hpp"

#include <cstring>
#include <stdexcept>

namespace dynamiccl::testing {

TestMemory::TestMemory(std::size_t bytes, bool device) : device_(device) {
  if (device) throw std::runtime_error("no memory of a GPU");
  host_.resize(bytes);
  data_ = host_.data();
}
TestMemory::~TestMemory() = default;

void TestMemory::put(char* place, const std::vector<char>& from, std::size_t bytes) const {
  std::memcpy(place, from.data(), bytes);
}
void TestMemory::get(const char* place, std::vector<char>& to, std::size_t bytes) const {
  std::memcpy(to.data(), place, bytes);
}

}  // namespace dynamiccl::testing
