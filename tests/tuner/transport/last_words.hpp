#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>

#include "tuner/transport/net_abi.hpp"

namespace dynamiccl::testing {

/// What the network warned of last.
inline std::string g_said;
/// A logger as NCCL's that keeps it.
inline void keep(int level, unsigned long, const char*, int, const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (level <= nccl_net::kWarn) g_said = text;
}

}  // namespace dynamiccl::testing
