#include "workers/backends/nccl_api.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include "core/vocabulary/error.hpp"
#include "workers/backends/nccl_library.hpp"

namespace dynamiccl {
namespace {

template <class Function>
void find(void* library, Function& function, const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr)
    throw Error(
        ErrorKind::environment,
        fmt::format("libnccl.so.2 has no {}: it is older than the NCCL this was built with", name));
  function = reinterpret_cast<Function>(symbol);
}

NcclApi load() {
  void* library = open_nccl_library();
  NcclApi api;
  find(library, api.get_version, "ncclGetVersion");
  find(library, api.get_unique_id, "ncclGetUniqueId");
  find(library, api.comm_init_rank_config, "ncclCommInitRankConfig");
  find(library, api.comm_destroy, "ncclCommDestroy");
  find(library, api.comm_abort, "ncclCommAbort");
  find(library, api.comm_get_async_error, "ncclCommGetAsyncError");
  find(library, api.get_error_string, "ncclGetErrorString");
  find(library, api.get_last_error, "ncclGetLastError");
  find(library, api.broadcast, "ncclBroadcast");
  find(library, api.reduce, "ncclReduce");
  find(library, api.all_reduce, "ncclAllReduce");
  find(library, api.all_gather, "ncclAllGather");
  find(library, api.reduce_scatter, "ncclReduceScatter");
  find(library, api.send, "ncclSend");
  find(library, api.recv, "ncclRecv");
  find(library, api.group_start, "ncclGroupStart");
  find(library, api.group_end, "ncclGroupEnd");
  const link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) api.path = map->l_name;
  return api;
}

}  // namespace

const NcclApi& nccl_api() {
  static const NcclApi api = load();
  return api;
}

}  // namespace dynamiccl
