// Preloaded into ranks: all interfaces but lo go while UCX opens those that it has found.
#include <dlfcn.h>
#include <ifaddrs.h>

#include <atomic>
#include <cstring>

namespace {

std::atomic<bool> gone{false};

template <class Call>
Call* real(const char* name) {
  return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int ucp_worker_create(void* context, const void* params, void** worker) {
  gone = true;
  return real<int(void*, const void*, void**)>("ucp_worker_create")(context, params, worker);
}

extern "C" int getifaddrs(ifaddrs** list) {
  const int code = real<int(ifaddrs**)>("getifaddrs")(list);
  if (code == 0 && gone)
    for (ifaddrs* at = *list; at != nullptr; at = at->ifa_next)
      if (std::strcmp(at->ifa_name, "lo") != 0) at->ifa_name[0] = '?';
  return code;
}
