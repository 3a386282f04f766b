#include "workers/backends/nccl_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

std::vector<std::string> candidates() {
  if (const char* named = std::getenv("DYNAMICCL_NCCL_LIBRARY"); named != nullptr && *named != '\0')
    return {named};
  return {"libnccl.so.2", DYNAMICCL_NCCL_BUILT_WITH, "/usr/local/cuda/lib/libnccl.so.2",
          "/usr/local/cuda/lib64/libnccl.so.2"};
}

}  // namespace

void* open_nccl_library() {
  // A second NCCL in a process shares symbols with the first: next to PyTorch's, the one of a
  // machine's packages refused all-reduces as "invalid argument" (two containers, 2x H100, 2.28.9).
  if (void* loaded = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD); loaded != nullptr)
    return loaded;
  std::vector<std::string> failures;
  for (const std::string& path : candidates()) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr)
      return library;
    const char* error = dlerror();
    failures.emplace_back(error != nullptr ? error : path);
  }
  throw Error(ErrorKind::environment,
              fmt::format("NCCL cannot be loaded ({}): install libnccl2, or name the file with "
                          "DYNAMICCL_NCCL_LIBRARY",
                          join(failures, "; ")));
}

}  // namespace dynamiccl
