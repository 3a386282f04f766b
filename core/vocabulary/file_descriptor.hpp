#pragma once

#include <unistd.h>

#include <utility>

namespace dynamiccl {

/// Owns a file descriptor: closes it at the end. Of everybody who holds one, down to the NCCL
/// plugin, which links nothing; so it has no source.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  /// @param number of one that is open, or what a failed open() gave: below 0 is none
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      number_ = other.release();
    }
    return *this;
  }
  ~FileDescriptor() { reset(); }
  [[nodiscard]] int get() const { return number_; }
  [[nodiscard]] bool valid() const { return number_ >= 0; }
  /// The caller closes it.
  int release() { return std::exchange(number_, -1); }
  void reset() {
    if (number_ >= 0) ::close(release());
  }

 private:
  int number_ = -1;
};

}  // namespace dynamiccl
