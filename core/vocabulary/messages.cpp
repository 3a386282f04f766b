#include "core/vocabulary/messages.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace dynamiccl {

namespace {

/// Characters of UTF-8 that a terminal shows by doing something: U+0080 to U+009F steer some, the
/// marks of writing from right to left show what is behind them in another order, as a verdict
/// that it is not.
/// @returns their bytes, 0 for others
std::size_t steering_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  if (byte(0) == 0xC2 && byte(1) >= 0x80 && byte(1) < 0xA0) return 2;
  if (byte(0) == 0xD8 && byte(1) == 0x9C) return 2;
  if (byte(0) != 0xE2) return 0;
  const bool marks = byte(1) == 0x80 && (byte(2) == 0x8E || byte(2) == 0x8F);
  const bool overrides = byte(1) == 0x80 && byte(2) >= 0xAA && byte(2) <= 0xAE;
  const bool isolates = byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9;
  return marks || overrides || isolates ? 3 : 0;
}

/// "\\x9b" or "\\u202e".
std::string shown_code(std::string_view letter) {
  unsigned code = static_cast<unsigned char>(letter[0]);
  if (letter.size() == 2) code = (code & 0x1FU) << 6 | (static_cast<unsigned>(letter[1]) & 0x3FU);
  if (letter.size() == 3)
    code = (code & 0xFU) << 12 | (static_cast<unsigned>(letter[1]) & 0x3FU) << 6 |
           (static_cast<unsigned>(letter[2]) & 0x3FU);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string shown = code < 0x100 ? "\\x" : "\\u";
  for (int shift = code < 0x100 ? 4 : 12; shift >= 0; shift -= 4)
    shown += kDigits[code >> shift & 0xFU];
  return shown;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  const char* end = text.data() + text.size();
  for (std::size_t at = 0; at < text.size();) {
    // Of text that has none of this, which can be long, a run at once.
    const char* begin = text.data() + at;
    const char* plain = begin;
    while (plain != end && *plain >= ' ' && *plain < 0x7f) ++plain;
    shown.append(begin, plain);
    at += static_cast<std::size_t>(plain - begin);
    if (plain == end) break;
    const auto letter = static_cast<unsigned char>(text[at]);
    const bool control = (letter < 0x20 && letter != '\n' && letter != '\t') || letter == 0x7f;
    const std::size_t bytes = control ? 1 : steering_bytes(text.substr(at));
    if (bytes == 0)
      shown += text[at];
    else
      shown += shown_code(text.substr(at, bytes));
    at += std::max<std::size_t>(bytes, 1);
  }
  return shown;
}

void tell(std::string_view text, std::FILE* out) noexcept {
  const int saved = errno;
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
  std::clearerr(out);
  errno = saved;
}

void open_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) != -1) continue;
    // Stdout is opened for reading alone, so that writing to it fails as it would have done closed.
    const int flags = descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY;
    [[maybe_unused]] const int opened = open("/dev/null", flags);
  }
}

}  // namespace dynamiccl
