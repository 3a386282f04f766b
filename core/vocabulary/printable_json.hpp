#pragma once

#include <string>
#include <string_view>

#include "core/vocabulary/messages.hpp"

namespace dynamiccl {

/// A JSON document that was dumped, without what would steer a terminal: a dump escapes what is
/// below U+0020 and leaves the rest as it stands. Who reads the document reads the same texts.
inline std::string printable_json(std::string_view document) {
  std::string shown;
  shown.reserve(document.size());
  for (std::size_t at = 0; at < document.size();) {
    const auto byte = static_cast<unsigned char>(document[at]);
    const std::size_t bytes = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    const std::string_view letter = document.substr(at, bytes);
    at += letter.size();
    const std::string code = byte < 0x7F ? std::string() : printable(letter);
    // "\\x9b" or "\\u202e".
    if (code.empty() || code == letter)
      shown += letter;
    else
      shown += "\\u" + std::string(code.size() == 4 ? 2 : 0, '0') + code.substr(2);
  }
  return shown;
}

}  // namespace dynamiccl
