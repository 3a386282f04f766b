#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tuner/transport/shared_folder.hpp"

namespace dynamiccl::transport {

inline constexpr unsigned kMostCells = 64;
inline constexpr unsigned kSlots = 64;  ///< messages of a connection that can be under way

/// One piece of a message. Cell k of all that were ever used is free for writing when its turn is
/// k, full when it is k + 1; then the reader makes it k + cells. Written by both processes: read
/// once, checked, then used.
struct alignas(64) Cell {
  std::atomic<std::uint32_t> turn;
  std::atomic<std::uint32_t> bytes;
  std::atomic<std::uint64_t> total;  ///< of the whole message
};

/// One posted receive into memory of a GPU, and its end.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> offset;  ///< from the start of the offered allocation
  std::atomic<std::uint64_t> capacity;
  std::atomic<std::uint32_t> key;       ///< of the offer
  std::atomic<std::uint32_t> posted;    ///< number of the message + 1, by the receiver, last
  std::atomic<std::uint64_t> sent;      ///< bytes, by the sender
  std::atomic<std::uint32_t> finished;  ///< number + 1, by the sender or its GPU, last
};

/// Memory of one connection that both processes map: a file without a name, of fixed size (sealed,
/// so that no peer can turn an access into a bus error), whose pages exist before the first byte is
/// sent.
class Ring {
 public:
  /// @param first_cell number of the cell that is written first; both ends begin there
  /// @returns nullptr and a problem: no memory left in this container, or what is given is not such
  /// a file
  static std::unique_ptr<Ring> make(unsigned cells, std::size_t cell_bytes, std::string& problem,
                                    std::uint32_t first_cell = 0);
  /// Memory of a connection.
  static std::size_t bytes_for(unsigned cells, std::size_t cell_bytes);
  static std::unique_ptr<Ring> map(FileDescriptor file, unsigned cells, std::size_t cell_bytes,
                                   std::string& problem);
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring();

  [[nodiscard]] Cell& cell(std::uint32_t number) { return control_->cells[number & (cells_ - 1)]; }
  [[nodiscard]] Slot& slot(std::uint64_t message) { return control_->slots[message % kSlots]; }
  [[nodiscard]] std::byte* data(std::uint32_t number) {
    return data_ + static_cast<std::size_t>(number & (cells_ - 1)) * cell_bytes_;
  }
  [[nodiscard]] unsigned cells() const { return cells_; }
  [[nodiscard]] std::size_t cell_bytes() const { return cell_bytes_; }
  [[nodiscard]] int file() const { return file_.get(); }
  /// The file is needed no more once the peer has it.
  void forget_file() { file_.reset(); }
  [[nodiscard]] void* memory() const { return control_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  struct Control {
    Cell cells[kMostCells];
    Slot slots[kSlots];
  };
  Ring() = default;
  bool map_file(std::string& problem);

  FileDescriptor file_;
  Control* control_ = nullptr;
  std::byte* data_ = nullptr;
  unsigned cells_ = 0;
  std::size_t cell_bytes_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace dynamiccl::transport
