#include "core/vocabulary/messages.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace dynamiccl {

std::string printable(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string shown;
  shown.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto letter = static_cast<unsigned char>(text[at]);
    const auto next = at + 1 < text.size() ? static_cast<unsigned char>(text[at + 1]) : 0U;
    const bool control = (letter < 0x20 && letter != '\n' && letter != '\t') || letter == 0x7f;
    // U+0080 to U+009F steer some terminals too.
    const bool second = letter == 0xC2 && next >= 0x80 && next < 0xA0;
    if (!control && !second) {
      shown += text[at];
      continue;
    }
    const unsigned code = second ? next : letter;
    shown += "\\x";
    shown += kDigits[code >> 4];
    shown += kDigits[code & 0xF];
    if (second) ++at;
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
    // Reading alone for stdout: what is written there fails, as it would have.
    const int flags = descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY;
    [[maybe_unused]] const int opened = open("/dev/null", flags);
  }
}

}  // namespace dynamiccl
