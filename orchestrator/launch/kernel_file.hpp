#pragma once

#include <algorithm>
#include <fstream>
#include <string>

namespace dynamiccl {

/// The text of a file that the kernel makes, in /proc or /sys, which is small: 64 KiB at most are
/// read. "" where it cannot be read.
inline std::string kernel_file_text(const std::string& path) {
  std::ifstream file(path);
  std::string text(65536, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount())));
  return text;
}

}  // namespace dynamiccl
