#include "profiles/detect/probes/cma_test.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>

namespace dynamiccl {
namespace {

constexpr std::size_t kStackBytes = 1U << 16;
constexpr std::uint64_t kPattern =
    0x64796e616d696363;  // any value that memory does not hold by chance

// Runs in the child on memory shared with the parent: bare system calls, nothing that a sanitizer
// or libc keeps books of.
__attribute__((no_sanitize("address", "undefined", "thread"))) int wait_to_be_killed(void*) {
  syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  while (true) syscall(SYS_ppoll, nullptr, 0, nullptr, nullptr, 0);
  return 0;
}

}  // namespace

Known<CmaTest> test_cma() {
  using Result = Known<CmaTest>;
  // clone instead of fork: no copy of a large rank's page tables, no handlers of pthread_atfork
  // (Open MPI warns from one), and without an exit signal the program's SIGCHLD handling never
  // hears of it.
  auto stack = std::make_unique<std::array<std::byte, kStackBytes>>();
  const int child = clone(wait_to_be_killed, stack->data() + kStackBytes, CLONE_VM, nullptr);
  if (child < 0) return Result::unknown(std::string("clone: ") + std::strerror(errno));
  volatile std::uint64_t source = kPattern;
  std::uint64_t target = 0;
  iovec local{&target, sizeof target};
  iovec remote{const_cast<std::uint64_t*>(&source), sizeof source};
  const ssize_t count = process_vm_readv(child, &local, 1, &remote, 1, 0);
  const int error = errno;
  kill(child, SIGKILL);
  while (waitpid(child, nullptr, __WALL) < 0 && errno == EINTR) {
  }
  if (count == sizeof target && target == kPattern)
    return {CmaTest{true, "read 8 bytes of a child process"}, ""};
  if (count < 0 && error == ENOSYS)
    return {CmaTest{false, "this kernel has no process_vm_readv"}, ""};
  if (count < 0)
    return {CmaTest{false, std::string("process_vm_readv: ") + std::strerror(error)}, ""};
  return Result::unknown("process_vm_readv returned " + std::to_string(count) + " bytes");
}

}  // namespace dynamiccl
