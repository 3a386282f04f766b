#include "core/vocabulary/error.hpp"

#include <fmt/format.h>

namespace dynamiccl {

void fail_assertion(const char* condition, const char* why, const char* file, int line) {
  throw Error(ErrorKind::bug,
              fmt::format("{}:{}: {} ({} does not hold)", file, line, why, condition));
}

}  // namespace dynamiccl
