#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

namespace dynamiccl::transport {

/// What copy threads can push on: one piece at a time, any number of threads at once.
class Movable {
 public:
  /// Moves one piece of at most `most` bytes. @returns whether there was one
  virtual bool step(std::size_t most) noexcept = 0;
  /// What is under way, a line for people who look for why nothing moves; "" where nothing is.
  [[nodiscard]] virtual std::string state() = 0;

 protected:
  ~Movable() = default;
};

/// The threads of this process that copy large messages. They sleep once none has been under way
/// for a millisecond or two, or one was but nothing moved for some tens; until then they look for
/// more and offer their cores to others.
class CopyPool {
 public:
  static CopyPool& instance();

  /// Threads start with the first connection, as many as the system allows; later calls do nothing
  /// where there are some.
  void start(unsigned threads);
  [[nodiscard]] unsigned threads() const { return threads_.load(std::memory_order_relaxed); }
  /// @returns false when there are too many connections
  bool add(Movable& movable);
  /// No thread is in its step() any more when this returns.
  void remove(Movable& movable);

  void begin_large() {
    active_.fetch_add(1, std::memory_order_seq_cst);
    wake();
  }
  void end_large() { active_.fetch_sub(1, std::memory_order_relaxed); }
  /// What the threads do, and every connection with something under way, line by line.
  [[nodiscard]] std::string state();
  /// There is something to move: a thread that dozed off comes back. Cheap when none did, or one is
  /// on its way.
  void wake() {
    if (sleeping_.load(std::memory_order_seq_cst) != 0 &&
        !waking_.exchange(true, std::memory_order_seq_cst))
      wake_one();
  }

 private:
  static constexpr std::size_t kMostConnections = 4096;
  static constexpr unsigned kMostThreads = 64;
  struct alignas(64) Round {
    std::atomic<std::uint64_t> number{0};  ///< odd while the thread looks at connections
  };

  CopyPool() = default;
  void run(unsigned id);
  bool scan(unsigned id, std::size_t& first);
  void doze();
  void wake_one();

  std::array<std::atomic<Movable*>, kMostConnections> connections_{};
  std::atomic<std::size_t> end_{0};
  std::array<Round, kMostThreads> rounds_{};
  std::atomic<unsigned> threads_{0};
  alignas(64) std::atomic<int> active_{0};
  alignas(64) std::atomic<int> sleeping_{0};
  std::atomic<bool> waking_{false};  ///< a thread was woken that has not come back yet
  std::atomic<std::uint32_t> signal_{0};
  std::mutex mutex_;
};

}  // namespace dynamiccl::transport
