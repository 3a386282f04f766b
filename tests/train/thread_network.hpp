#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "tests/train/idle_communicator.hpp"

namespace dynamiccl::testing {

/// Messages among threads; a send ends when it has been received.
class Network {
 public:
  struct Call {
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t bytes = 0;
    bool done = false;
  };
  using CallPtr = std::shared_ptr<Call>;
  using Way = std::array<int, 3>;  ///< sender, receiver, tag

  void add(const Way& way, const CallPtr& call) {
    const std::lock_guard lock(mutex_);
    (call->from != nullptr ? sends_ : receives_)[way].push_back(call);
    auto& sends = sends_[way];
    auto& receives = receives_[way];
    while (!sends.empty() && !receives.empty()) {
      const CallPtr send = sends.front();
      const CallPtr receive = receives.front();
      sends.pop_front();
      receives.pop_front();
      if (send->bytes > receive->bytes) throw Error(ErrorKind::data, "message truncated");
      std::memcpy(receive->to, send->from, send->bytes);
      send->done = receive->done = true;
    }
    changed_.notify_all();
  }
  void wait(const Call& call) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(30), [&] { return call.done; }))
      throw Error(ErrorKind::environment, "the ranks wait for each other");
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Way, std::deque<CallPtr>> sends_;
  std::map<Way, std::deque<CallPtr>> receives_;
};

/// One thread's rank.
class ThreadCommunicator : public IdleCommunicator {
 public:
  ThreadCommunicator(Network& network, int rank, int size)
      : IdleCommunicator(rank, size), network_(network) {}
  Request isend(const void* data, std::size_t bytes, int to, int tag) override {
    sent += bytes;
    return started({rank(), to, tag}, {data, nullptr, bytes});
  }
  Request irecv(void* data, std::size_t bytes, int from, int tag) override {
    return started({from, rank(), tag}, {nullptr, data, bytes});
  }
  void wait(Request request) override {
    Network::CallPtr& call = calls_.at(static_cast<std::size_t>(request));
    if (call == nullptr) throw Error(ErrorKind::bug, "waited for twice");
    network_.wait(*call);
    call.reset();
  }
  /// Of floats in place, in rank order: the first rank adds.
  void allreduce(const void* in, void* out, std::size_t count, DataType) override {
    if (look) look(in);
    if (in != out) throw Error(ErrorKind::bug, "not in place");
    const std::size_t bytes = count * sizeof(float);
    if (rank() > 0) {
      wait(isend(in, bytes, 0, kSumTag));
      return wait(irecv(out, bytes, 0, kSumTag));
    }
    auto* sums = static_cast<float*>(out);
    std::vector<float> more(count);
    for (int from = 1; from < size(); ++from) {
      wait(irecv(more.data(), bytes, from, kSumTag));
      std::transform(more.begin(), more.end(), sums, sums, std::plus<>());
    }
    for (int to = 1; to < size(); ++to) wait(isend(out, bytes, to, kSumTag));
  }
  void broadcast(void* data, std::size_t count, DataType type, int root) override {
    const std::size_t bytes = count * element_bytes(type);
    if (rank() != root) return wait(irecv(data, bytes, root, kRootTag));
    for (int to = 0; to < size(); ++to)
      if (to != root) wait(isend(data, bytes, to, kRootTag));
  }
  [[nodiscard]] std::size_t open() const {
    return static_cast<std::size_t>(std::count_if(
        calls_.begin(), calls_.end(), [](const auto& call) { return call != nullptr; }));
  }
  std::uint64_t sent = 0;
  /// Looks at every buffer that is sent from or received into.
  std::function<void(const void*)> look;

 private:
  static constexpr int kSumTag = -1;
  static constexpr int kRootTag = -5;
  Request started(const Network::Way& way, const Network::Call& call) {
    if (look) look(call.from != nullptr ? call.from : call.to);
    if (call.to != nullptr) check_free(call);
    calls_.push_back(std::make_shared<Network::Call>(call));
    network_.add(way, calls_.back());
    return static_cast<Request>(calls_.size() - 1);
  }
  /// As MPI has it: memory that is being sent from, or received into, is nobody else's.
  void check_free(const Network::Call& receive) const {
    const auto begin = [](const Network::Call& call) {
      return static_cast<const char*>(call.from != nullptr ? call.from : call.to);
    };
    for (const auto& open : calls_)
      if (open != nullptr && begin(*open) < begin(receive) + receive.bytes &&
          begin(receive) < begin(*open) + open->bytes)
        throw Error(ErrorKind::bug, "receives into what is under way");
  }
  Network& network_;
  std::vector<Network::CallPtr> calls_;
};

}  // namespace dynamiccl::testing
