#include "core/vocabulary/file_text.hpp"

#include <algorithm>
#include <array>
#include <fstream>

namespace dynamiccl {

// By read() alone: a stream's iterators, and its buffer's own functions, throw what the stream
// would only note.
std::optional<std::string> read_file(const std::string& path, std::size_t most_bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text;
  std::array<char, 16384> part{};
  while (text.size() < most_bytes && file) {
    const auto wanted = std::min(part.size(), most_bytes - text.size());
    file.read(part.data(), static_cast<std::streamsize>(wanted));
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) return std::nullopt;
  return text;
}

std::string file_text(const std::string& path, std::size_t most_bytes) {
  return read_file(path, most_bytes).value_or("");
}

}  // namespace dynamiccl
