// Rooted operations of NcclCommunicator: those that reach a server without a GPU by the chief.
#include <cstring>

#include "workers/backends/nccl.hpp"
#include "workers/device/cuda_check.hpp"
#include "workers/measure/clock.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {

/// Page-locked host memory of the chief, grown by the untimed first call.
std::byte* NcclCommunicator::staging(std::size_t bytes) {
  if (staging_bytes_ < bytes) {
    staging_.reset();
    staging_ = device_->allocate_pinned(bytes);
    staging_bytes_ = bytes;
  }
  return staging_.get();
}

/// GPU memory for all workers' parts.
std::byte* NcclCommunicator::gathered(std::size_t bytes) {
  if (gathered_bytes_ < bytes) {
    gathered_.reset();
    gathered_ = device_->allocate(bytes);
    gathered_bytes_ = bytes;
  }
  return gathered_.get();
}

/// Chief: what the workers' collective left on its GPU goes to the server.
void NcclCommunicator::send_down(const void* device, std::size_t bytes) {
  complete();
  const double start_us = now_us();
  device_->copy_to_host(staging_.get(), device, bytes);
  const double copied_us = now_us();
  host_->wait(host_->isend(staging_.get(), bytes, apart_, kPushTag));
  phases_.d2h_us += copied_us - start_us;
  phases_.send_us += now_us() - copied_us;
}

/// Chief: what the server sends comes onto its GPU.
void NcclCommunicator::receive_up(void* device, std::size_t bytes) {
  const double start_us = now_us();
  host_->wait(host_->irecv(staging_.get(), bytes, apart_, kPullTag));
  const double received_us = now_us();
  device_->copy_to_device(device, staging_.get(), bytes);
  phases_.send_us += received_us - start_us;
  phases_.h2d_us += now_us() - received_us;
}

void NcclCommunicator::broadcast(void* data, std::size_t count, DataType type, int root) {
  const std::size_t bytes = count * element_bytes(type);
  int nccl_root = nccl_rank_of(root);
  if (root == apart_) {
    nccl_root = 0;
    if (!in_nccl()) {
      const double start_us = now_us();
      host_->wait(host_->isend(data, bytes, chief(), kPullTag));
      phases_.send_us += now_us() - start_us;
      return;
    }
    if (is_chief()) {
      staging(bytes);
      receive_up(data, bytes);
    }
  }
  check(api_->broadcast(data, data, count, nccl_type(type), nccl_root, comm_, queue_->stream()),
        "ncclBroadcast");
}

void NcclCommunicator::reduce(const void* in, void* out, std::size_t count, DataType type,
                              int root) {
  const std::size_t bytes = count * element_bytes(type);
  if (root != apart_) {
    check(api_->reduce(in, out, count, nccl_type(type), ncclSum, nccl_rank_of(root), comm_,
                       queue_->stream()),
          "ncclReduce");
    return;
  }
  if (!in_nccl()) {
    const double start_us = now_us();
    host_->wait(host_->irecv(out, bytes, chief(), kPushTag));
    phases_.send_us += now_us() - start_us;
    return;
  }
  if (is_chief()) staging(bytes);
  std::byte* sum = is_chief() ? gathered(bytes) : nullptr;
  check(api_->reduce(in, sum, count, nccl_type(type), ncclSum, 0, comm_, queue_->stream()),
        "ncclReduce");
  if (is_chief()) send_down(sum, bytes);
}

void NcclCommunicator::gather(const void* in, void* out, std::size_t count, DataType type,
                              int root) {
  const std::size_t bytes = count * element_bytes(type);
  if (root != apart_) {
    check(api_->group_start(), "ncclGroupStart");
    check(api_->send(in, count, nccl_type(type), nccl_rank_of(root), comm_, queue_->stream()),
          "ncclSend");
    for (int peer = 0; rank() == root && peer < nccl_size_; ++peer) {
      check(api_->recv(static_cast<std::byte*>(out) + static_cast<std::size_t>(peer) * bytes, count,
                       nccl_type(type), peer, comm_, queue_->stream()),
            "ncclRecv");
    }
    check(api_->group_end(), "ncclGroupEnd");
    return;
  }
  const std::size_t all = bytes * static_cast<std::size_t>(nccl_size_);
  const std::size_t before = bytes * static_cast<std::size_t>(apart_);
  if (!in_nccl()) {
    auto* to = static_cast<std::byte*>(out);
    const double start_us = now_us();
    // The workers' parts come as one message, the server's own belongs between them.
    std::byte* landing = apart_ == 0 ? to + bytes : to;
    host_->wait(host_->irecv(landing, all, chief(), kPushTag));
    phases_.send_us += now_us() - start_us;
    if (apart_ != 0) std::memmove(to + before + bytes, to + before, all - before);
    if (in != to + before) std::memcpy(to + before, in, bytes);
    return;
  }
  if (is_chief()) staging(all);
  std::byte* parts = gathered(all);
  check(api_->all_gather(in, parts, count, nccl_type(type), comm_, queue_->stream()),
        "ncclAllGather");
  if (is_chief()) send_down(parts, all);
}

}  // namespace dynamiccl
