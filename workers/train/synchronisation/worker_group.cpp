#include "workers/train/synchronisation/worker_group.hpp"

#include "workers/tags.hpp"

namespace dynamiccl {

int GroupMessages::receive_any(void* data, std::size_t bytes, const std::vector<int>& from, int tag,
                               Micros limit) {
  std::vector<int> ranks;
  for (const int rank : from) ranks.push_back(first_rank_ + rank);
  return all_.receive_any(data, bytes, ranks, tag, limit) - first_rank_;
}

void WorkerGroup::sum() {
  for (std::size_t piece = 0; piece < plan_.pieces.size(); ++piece) ring_.all_reduce(piece);
}

double WorkerGroup::mean(double loss) { return sum_over_ranks(group_, {loss})[0] / group_.size(); }

void WorkerGroup::share(void* data, std::size_t bytes) {
  if (!leads()) return group_.wait(group_.irecv(data, bytes, 0, kGroupTag));
  std::vector<Request> requests;
  for (int to = 1; to < group_.size(); ++to)
    requests.push_back(group_.isend(data, bytes, to, kGroupTag));
  for (const Request request : requests) group_.wait(request);
  sent_bytes_ += requests.size() * bytes;
}

}  // namespace dynamiccl
