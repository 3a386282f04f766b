// The library's own CMA calls land here: the executable exports these two names, so the dynamic
// linker prefers them to libc's. They count and forward, and never change what the caller sees.
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "workers/transport.hpp"

namespace dynamiccl {
namespace {

std::atomic<std::uint64_t> g_bytes{0};
std::atomic<std::uint64_t> g_calls{0};
std::atomic<std::uint64_t> g_errors{0};

long count(long moved) {
  g_calls.fetch_add(1, std::memory_order_relaxed);
  if (moved < 0) {
    g_errors.fetch_add(1, std::memory_order_relaxed);
  } else {
    g_bytes.fetch_add(static_cast<std::uint64_t>(moved), std::memory_order_relaxed);
  }
  return moved;
}

}  // namespace

Traffic cma_traffic() {
  Traffic traffic;
  traffic.cma_bytes = g_bytes.load(std::memory_order_relaxed);
  traffic.cma_calls = g_calls.load(std::memory_order_relaxed);
  traffic.cma_errors = g_errors.load(std::memory_order_relaxed);
  return traffic;
}

}  // namespace dynamiccl

extern "C" {

ssize_t process_vm_readv(pid_t pid, const struct iovec* local, unsigned long local_count,
                         const struct iovec* remote, unsigned long remote_count,
                         unsigned long flags) {
  return dynamiccl::count(
      syscall(SYS_process_vm_readv, pid, local, local_count, remote, remote_count, flags));
}

ssize_t process_vm_writev(pid_t pid, const struct iovec* local, unsigned long local_count,
                          const struct iovec* remote, unsigned long remote_count,
                          unsigned long flags) {
  return dynamiccl::count(
      syscall(SYS_process_vm_writev, pid, local, local_count, remote, remote_count, flags));
}
}
