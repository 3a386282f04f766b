#include "workers/measure/buffers.hpp"

#include <cstring>
#include <new>

namespace dynamiccl {

Buffer::Buffer(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  if (bytes == 0) return;
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kPage, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  data_ = std::shared_ptr<std::byte>(memory, [](std::byte* at) { std::free(at); });
  std::memset(data_.get(), 0, rounded);
}

}  // namespace dynamiccl
