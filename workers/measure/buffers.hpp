#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <utility>

namespace dynamiccl {

/// Host memory on cache lines, every page written once, so that no timed call meets a first touch;
/// without hints to the kernel of our own: what a training framework's allocator gets. It is
/// malloc's, so that glibc.malloc.hugetlb (core/vocabulary/malloc_settings.hpp) holds for it too.
class Buffer {
 public:
  Buffer() = default;
  /// @throws std::bad_alloc
  explicit Buffer(std::size_t bytes);
  /// Takes memory of another kind over: a GPU's, or page-locked.
  explicit Buffer(std::shared_ptr<std::byte> data) : data_(std::move(data)) {}
  [[nodiscard]] std::byte* data() const { return data_.get(); }

 private:
  std::shared_ptr<std::byte> data_;
};

/// The launch's buffers in one kind of memory, sized once for its largest cell and used by all.
struct Buffers {
  Buffer in;
  Buffer out;
  Buffer scratch;
};

}  // namespace dynamiccl
