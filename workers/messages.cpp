#include "workers/messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/vocabulary/error.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {

void refuse_silence(const std::vector<int>& from, Micros limit) {
  throw SilenceError(
      ErrorKind::environment,
      fmt::format(
          "none of the ranks {} has sent anything for {:.0f} s: one that has ended "
          "says why in its own record, one that was stopped, or whose machine is gone, does "
          "not (DYNAMICCL_SILENCE_S says how long is waited)",
          fmt::join(from, ", "), limit.count() / 1e6));
}

void exchange(Messages& comm, const void* send, std::size_t send_bytes, int to, void* receive,
              std::size_t receive_bytes, int from, int tag) {
  const Request in = comm.irecv(receive, receive_bytes, from, tag);
  const Request out = comm.isend(send, send_bytes, to, tag);
  comm.wait(in);
  comm.wait(out);
}

void barrier(Messages& comm) {
  const int size = comm.size();
  const int rank = comm.rank();
  char sent = 0;
  char received = 0;
  for (int distance = 1; distance < size; distance *= 2) {
    exchange(comm, &sent, 1, (rank + distance) % size, &received, 1,
             (rank - distance + size) % size, kBarrierTag);
  }
}

namespace {

using Combine = std::function<void(double&, double)>;

/// Binomial tree up to rank 0 and down again.
std::vector<double> combine_over_ranks(Messages& comm, std::vector<double> values,
                                       const Combine& combine) {
  const int size = comm.size();
  const int rank = comm.rank();
  const std::size_t bytes = values.size() * sizeof(double);
  std::vector<double> other(values.size());
  int distance = 1;
  for (; distance < size; distance *= 2) {
    if (rank % (2 * distance) != 0) {
      comm.wait(comm.isend(values.data(), bytes, rank - distance, kControlTag));
      break;
    }
    if (rank + distance >= size) continue;
    comm.wait(comm.irecv(other.data(), bytes, rank + distance, kControlTag));
    for (std::size_t i = 0; i < values.size(); ++i) combine(values[i], other[i]);
  }
  if (rank != 0) comm.wait(comm.irecv(values.data(), bytes, rank - distance, kControlTag));
  for (distance /= 2; distance >= 1; distance /= 2) {
    if (rank + distance < size)
      comm.wait(comm.isend(values.data(), bytes, rank + distance, kControlTag));
  }
  return values;
}

}  // namespace

std::vector<double> max_over_ranks(Messages& comm, std::vector<double> values) {
  return combine_over_ranks(comm, std::move(values),
                            [](double& a, double b) { a = std::max(a, b); });
}

std::vector<double> sum_over_ranks(Messages& comm, std::vector<double> values) {
  return combine_over_ranks(comm, std::move(values), [](double& a, double b) { a += b; });
}

}  // namespace dynamiccl
