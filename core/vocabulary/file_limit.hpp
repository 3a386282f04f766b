#pragma once

#include <csignal>
#include <ctime>

namespace dynamiccl {

/// While it lives, a file that grows past the limit on file sizes (`ulimit -f`) is EFBIG for this
/// thread, an error like others, and not SIGXFSZ, which ends the program without a word
/// (setrlimit(2)). For libraries in others' programs, whose signals are not theirs to ignore.
class FileLimitSignal {
 public:
  FileLimitSignal() {
    sigset_t before;
    sigemptyset(&limit_);
    sigaddset(&limit_, SIGXFSZ);
    blocked_here_ =
        pthread_sigmask(SIG_BLOCK, &limit_, &before) == 0 && sigismember(&before, SIGXFSZ) == 0;
  }
  ~FileLimitSignal() {
    if (!blocked_here_) return;
    // One that this thread caused meanwhile would come with the unblocking.
    const timespec at_once{};
    while (sigtimedwait(&limit_, nullptr, &at_once) > 0) continue;
    pthread_sigmask(SIG_UNBLOCK, &limit_, nullptr);
  }
  FileLimitSignal(const FileLimitSignal&) = delete;
  FileLimitSignal& operator=(const FileLimitSignal&) = delete;

 private:
  sigset_t limit_{};
  bool blocked_here_ = false;
};

}  // namespace dynamiccl
