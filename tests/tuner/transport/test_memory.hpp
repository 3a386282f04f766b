#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dynamiccl::testing {

/// Memory that messages are sent from and received into: of the host, or of a GPU through
/// libcuda.so.1.
class TestMemory {
 public:
  TestMemory(std::size_t bytes, bool device);
  TestMemory(const TestMemory&) = delete;
  TestMemory& operator=(const TestMemory&) = delete;
  ~TestMemory();

  [[nodiscard]] char* data() const { return data_; }
  void put(char* place, const std::vector<char>& from, std::size_t bytes) const;
  void get(const char* place, std::vector<char>& to, std::size_t bytes) const;

 private:
  char* data_ = nullptr;
  std::size_t mapped_ = 0;  ///< bytes of a GPU's
  std::vector<char> host_;
};

/// What the stand-in for CUDA's driver has not got back.
int left_on_gpu();

}  // namespace dynamiccl::testing
