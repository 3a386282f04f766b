#include "tuner/transport/connection.hpp"

#include <algorithm>
#include <new>

#include "tuner/transport/settings.hpp"

namespace dynamiccl::transport {

Counts& counts() {
  static Counts all;
  return all;
}

Result Connection::ready(bool& is_ready) {
  is_ready = true;
  return nccl_net::kSuccess;
}

Result Connection::register_memory(void* data, std::size_t bytes, int type, Memory*& memory) {
  if (type != nccl_net::kPointerHost)
    return fail(nccl_net::kInvalidUsage,
                "memory of a GPU was offered to a connection that copies host memory alone. Set "
                "DYNAMICCL_TRANSPORT_DEVICE alike on all ranks.");
  memory = new (std::nothrow) Memory;
  if (memory == nullptr) return nccl_net::kSystemError;
  memory->base = static_cast<std::byte*>(data);
  memory->bytes = bytes;
  return nccl_net::kSuccess;
}

Result Connection::forget_memory(Memory* memory) {
  delete memory;
  return nccl_net::kSuccess;
}

std::uint64_t Connection::messages_under_way() const {
  return static_cast<std::uint64_t>(
      std::count_if(requests_.begin(), requests_.end(),
                    [](const Request& request) { return request.in_use.load(); }));
}

Request* Connection::new_request(std::byte* data, std::size_t bytes) {
  const std::uint64_t number = posted_.load(std::memory_order_relaxed);
  Request& request = requests_[number % kSlots];
  if (request.in_use) return nullptr;
  request.connection = this;
  request.data = data;
  request.bytes = bytes;
  request.moved = 0;
  request.number = number;
  request.started = false;
  request.large.store(false, std::memory_order_relaxed);
  request.in_use = true;
  return &request;
}

}  // namespace dynamiccl::transport
