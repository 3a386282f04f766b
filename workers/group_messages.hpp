#pragma once

#include <utility>
#include <vector>

#include "workers/messages.hpp"

namespace dynamiccl {

/// Some of the ranks as if they were all there are: what sums among all ranks sums among them.
class GroupMessages final : public Messages {
 public:
  /// @param members ranks of `all`, this one among them; a member's place here is its rank
  GroupMessages(Messages& all, std::vector<int> members)
      : all_(all), members_(std::move(members)), rank_(rank_of(all.rank())) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(members_.size()); }
  Request isend(const void* data, std::size_t bytes, int to, int tag) override {
    return all_.isend(data, bytes, outside(to), tag);
  }
  Request irecv(void* data, std::size_t bytes, int from, int tag) override {
    return all_.irecv(data, bytes, outside(from), tag);
  }
  void wait(Request request) override { all_.wait(request); }
  void wait_within(Request request, int peer, Micros limit) override {
    all_.wait_within(request, outside(peer), limit);
  }
  int receive_any(void* data, std::size_t bytes, const std::vector<int>& from, int tag,
                  Micros limit) override {
    std::vector<int> ranks;
    for (const int rank : from) ranks.push_back(outside(rank));
    return rank_of(all_.receive_any(data, bytes, ranks, tag, limit));
  }
  void progress() override { all_.progress(); }

 private:
  [[nodiscard]] int outside(int member) const { return members_[static_cast<std::size_t>(member)]; }
  [[nodiscard]] int rank_of(int outside_rank) const {
    for (std::size_t i = 0; i < members_.size(); ++i)
      if (members_[i] == outside_rank) return static_cast<int>(i);
    return -1;
  }

  Messages& all_;
  std::vector<int> members_;
  int rank_;
};

}  // namespace dynamiccl
