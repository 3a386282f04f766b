#include "workers/measure/buffers.hpp"

#include <cstring>
#include <new>

namespace dynamiccl {

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  constexpr std::size_t kPage = 4096;
  if (bytes == 0) return;
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, rounded)));
  if (!data_) throw std::bad_alloc();
  std::memset(data_.get(), 0, rounded);
}

}  // namespace dynamiccl
