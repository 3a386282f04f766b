#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

/// Prints "allowed" when a process may read another one's memory with process_vm_readv, else
/// "refused".
int main() {
  int value = 42;
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    int copy = 0;
    iovec local{&copy, sizeof copy};
    iovec remote{&value, sizeof value};
    const bool read = process_vm_readv(parent, &local, 1, &remote, 1, 0) == sizeof copy;
    _exit(read && copy == value ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::puts(status == 0 ? "allowed" : "refused");
  return 0;
}
