#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace dynamiccl {

/// Page-aligned host memory, every page written once, so that no timed call meets a first touch.
/// Plain 4 KiB alignment without hints to the kernel: what a user's large malloc gets.
class Buffer {
 public:
  Buffer() = default;
  /// @throws std::bad_alloc
  explicit Buffer(std::size_t bytes);
  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* at) const { std::free(at); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_ = 0;
};

/// The launch's buffers, sized once for its largest cell and used by all.
struct Buffers {
  Buffer in;
  Buffer out;
  Buffer scratch;
};

}  // namespace dynamiccl
