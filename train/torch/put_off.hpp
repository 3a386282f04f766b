#pragma once

#include <cstddef>
#include <vector>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {

/// Numbered pieces of work that may be put off and then done together with a later one: whoever
/// waits for a piece waits for the one that it was done with. Numbers come again in every step.
class PutOff {
 public:
  void put_off(std::size_t number) {
    if (done_with_.size() <= number) done_with_.resize(number + 1, kNever);
    done_with_[number] = kNever;
    waiting_.push_back(number);
  }
  /// This one, and with it all that were put off.
  void done(std::size_t number) {
    put_off(number);
    for (const std::size_t each : waiting_) done_with_[each] = number;
    waiting_.clear();
  }
  [[nodiscard]] std::size_t done_with(std::size_t number) const {
    const std::size_t with = done_with_.at(number);
    DYN_ASSERT(with != kNever, "what was put off is done before it is waited for");
    return with;
  }

 private:
  static constexpr std::size_t kNever = ~std::size_t{0};
  std::vector<std::size_t> done_with_;
  std::vector<std::size_t> waiting_;
};

}  // namespace dynamiccl
