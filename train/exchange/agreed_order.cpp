#include "train/exchange/agreed_order.hpp"

#include <algorithm>

#include "workers/tags.hpp"

namespace dynamiccl {

void AgreedOrder::agree(std::vector<std::size_t>& chosen) {
  const std::size_t bytes = order_.size() * sizeof(std::uint32_t);
  if (!chooses()) {
    comm_.wait(comm_.irecv(order_.data(), bytes, 0, kOrderTag));
    chosen.assign(order_.begin() + 1, order_.begin() + 1 + order_[0]);
    return;
  }
  order_[0] = static_cast<std::uint32_t>(chosen.size());
  std::transform(chosen.begin(), chosen.end(), order_.begin() + 1,
                 [](std::size_t piece) { return static_cast<std::uint32_t>(piece); });
  std::vector<Request> sending;
  for (int rank = 1; rank < comm_.size(); ++rank)
    sending.push_back(comm_.isend(order_.data(), bytes, rank, kOrderTag));
  for (const Request request : sending) comm_.wait(request);
}

}  // namespace dynamiccl
