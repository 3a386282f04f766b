#include "tuner/transport/copy_pool.hpp"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <string>
#include <system_error>
#include <thread>

#include "tuner/transport/settings.hpp"

namespace dynamiccl::transport {
namespace {

// Looks in vain before the core is offered to others (early: NCCL's own threads, which offer theirs
// at once, would get little of one that is shared with copy threads), and before the thread sleeps
// while no large message is under way, and while one is.
constexpr int kSpins = 64;
constexpr int kPatience = 2000;
constexpr int kPatienceActive = 40000;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/// The program's signals are its own threads'.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

CopyPool& CopyPool::instance() {
  static CopyPool* const pool = new CopyPool;  // its threads outlive static objects
  return *pool;
}

void CopyPool::start(unsigned threads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (threads_.load() != 0) return;
  const unsigned count = std::min(threads, kMostThreads);
  for (unsigned id = 0; id < count; ++id) {
    // Before the thread runs: who removes a connection waits for all that may look at it.
    threads_.store(id + 1);
    try {
      std::thread([this, id] {
        block_signals();
        pthread_setname_np(pthread_self(), "dynamiccl-copy");
        run(id);
      }).detach();
    } catch (const std::system_error& error) {
      threads_.store(id);
      say(nccl_net::kWarn, std::string("only ") + std::to_string(id) + " of " +
                               std::to_string(count) + " copy threads: " + error.what() +
                               ". Raise this container's limit of processes.");
      return;
    }
  }
}

bool CopyPool::add(Movable& movable) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (std::size_t i = 0; i < kMostConnections; ++i) {
    if (connections_[i].load(std::memory_order_relaxed) != nullptr) continue;
    connections_[i].store(&movable, std::memory_order_seq_cst);
    if (i >= end_.load(std::memory_order_relaxed)) end_.store(i + 1, std::memory_order_seq_cst);
    return true;
  }
  return false;
}

void CopyPool::remove(Movable& movable) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::size_t end = end_.load();
  for (std::size_t i = 0; i < end; ++i)
    if (connections_[i].load(std::memory_order_relaxed) == &movable)
      connections_[i].store(nullptr, std::memory_order_seq_cst);
  // Whoever began to look before that may still hold it; who begins later cannot see it.
  for (unsigned id = 0; id < threads_.load(); ++id) {
    const std::uint64_t round = rounds_[id].number.load(std::memory_order_seq_cst);
    if ((round & 1) == 0) continue;
    while (rounds_[id].number.load(std::memory_order_acquire) == round) sched_yield();
  }
}

std::string CopyPool::state() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text = std::to_string(threads_.load()) + " copy threads, " +
                     std::to_string(sleeping_.load()) + " asleep" +
                     (waking_.load() ? ", one on its way, " : ", ") +
                     std::to_string(active_.load()) + " large messages\n";
  for (std::size_t i = 0; i < end_.load(); ++i)
    if (Movable* movable = connections_[i].load()) text += movable->state();
  return text;
}

bool CopyPool::scan(unsigned id, std::size_t& first) {
  std::atomic<std::uint64_t>& round = rounds_[id].number;
  const std::uint64_t number = round.load(std::memory_order_relaxed);
  round.store(number + 1, std::memory_order_seq_cst);
  const std::size_t end = end_.load(std::memory_order_seq_cst);
  bool any = false;
  for (std::size_t i = 0; i < end; ++i) {
    Movable* movable = connections_[(i + first) % end].load(std::memory_order_seq_cst);
    if (movable != nullptr && movable->step(std::numeric_limits<std::size_t>::max())) any = true;
  }
  round.store(number + 2, std::memory_order_release);
  ++first;
  return any;
}

void CopyPool::run(unsigned id) {
  std::size_t first = id;
  int idle = 0;
  for (;;) {
    if (scan(id, first)) {
      idle = 0;
      wake();  // where there was one piece there are more
      continue;
    }
    const bool active = active_.load(std::memory_order_acquire) != 0;
    if (++idle > (active ? kPatienceActive : kPatience)) {
      doze();
      idle = 0;
    } else if (idle > kSpins) {
      sched_yield();
    } else {
      pause_briefly();
    }
  }
}

void CopyPool::doze() {
  const std::uint32_t seen = signal_.load(std::memory_order_seq_cst);
  sleeping_.fetch_add(1, std::memory_order_seq_cst);
  // Who was woken may have come back by itself just before: the next call wakes again.
  waking_.store(false, std::memory_order_seq_cst);
  // A message that began before it was known that this thread sleeps woke nobody; a later one does.
  const bool quiet = active_.load(std::memory_order_seq_cst) == 0;
  const timespec moment{0, 2'000'000};
  syscall(SYS_futex, &signal_, FUTEX_WAIT_PRIVATE, seen, quiet ? nullptr : &moment, nullptr, 0);
  sleeping_.fetch_sub(1, std::memory_order_seq_cst);
  waking_.store(false, std::memory_order_seq_cst);
}

void CopyPool::wake_one() {
  signal_.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &signal_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace dynamiccl::transport
