#include "workers/collectives/parameter_server.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "workers/collectives/sum.hpp"
#include "workers/measure/clock.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kSlots = 2;

struct Segments {
  std::size_t elements;
  std::size_t per_segment;
  std::size_t count;
  Segments(std::size_t total, DataType type, std::size_t segment_bytes)
      : elements(total),
        per_segment(std::clamp<std::size_t>(segment_bytes / element_bytes(type), 1, total)),
        count((total + per_segment - 1) / per_segment) {}
  [[nodiscard]] std::size_t length(std::size_t index) const {
    return std::min(per_segment, elements - index * per_segment);
  }
};

void send_segments(const Call& call) {
  const Segments segments(call.layout.count, call.type, call.segment_bytes);
  const std::size_t width = element_bytes(call.type);
  std::array<Request, kSlots> pending{};
  for (std::size_t i = 0; i < segments.count; ++i) {
    if (i >= kSlots) call.comm.wait(pending[i % kSlots]);
    pending[i % kSlots] = call.comm.isend(call.in + i * segments.per_segment * width,
                                          segments.length(i) * width, call.layout.root, kPushTag);
  }
  const std::size_t open = std::min(segments.count, kSlots);
  for (std::size_t i = segments.count - open; i < segments.count; ++i)
    call.comm.wait(pending[i % kSlots]);
}

/// The server's side of a push: segments of all workers arrive side by side.
class PushReceiver {
 public:
  explicit PushReceiver(const Call& call)
      : call_(call),
        segments_(call.layout.count, call.type, call.segment_bytes),
        width_(element_bytes(call.type)),
        workers_(static_cast<std::size_t>(call.comm.size()) - 1),
        pending_(kSlots * workers_) {}

  void run(PhaseTimes& times) {
    for (std::size_t i = 0; i < std::min(kSlots, segments_.count); ++i) post(i);
    for (std::size_t i = 0; i < segments_.count; ++i) {
      for (std::size_t worker = 0; worker < workers_; ++worker) {
        call_.comm.wait(pending_[(i % kSlots) * workers_ + worker]);
        const double start_us = now_us();
        add(i, worker);
        times.compute_us += now_us() - start_us;
      }
      if (i + kSlots < segments_.count) post(i + kSlots);
    }
  }

 private:
  std::byte* slot(std::size_t segment, std::size_t worker) {
    return call_.scratch +
           ((segment % kSlots) * workers_ + worker) * segments_.per_segment * width_;
  }
  void post(std::size_t segment) {
    for (std::size_t worker = 0; worker < workers_; ++worker) {
      const int rank = static_cast<int>(worker) < call_.layout.root ? static_cast<int>(worker)
                                                                    : static_cast<int>(worker) + 1;
      pending_[(segment % kSlots) * workers_ + worker] = call_.comm.irecv(
          slot(segment, worker), segments_.length(segment) * width_, rank, kPushTag);
    }
  }
  void add(std::size_t segment, std::size_t worker) {
    std::byte* sum = call_.out + segment * segments_.per_segment * width_;
    const std::size_t length = segments_.length(segment);
    if (workers_ == 1) {
      std::memcpy(sum, slot(segment, 0), length * width_);
    } else if (worker == 1) {
      sum_elements(sum, slot(segment, 0), slot(segment, 1), length, call_.type);
    } else if (worker > 1) {
      sum_elements(sum, sum, slot(segment, worker), length, call_.type);
    }
  }

  const Call& call_;
  Segments segments_;
  std::size_t width_;
  std::size_t workers_;
  std::vector<Request> pending_;
};

void send_to_workers(const Call& call, const std::byte* data) {
  const std::size_t bytes = call.layout.count * element_bytes(call.type);
  std::vector<Request> pending;
  pending.reserve(static_cast<std::size_t>(call.comm.size()));
  for (int rank = 0; rank < call.comm.size(); ++rank) {
    if (rank != call.layout.root) pending.push_back(call.comm.isend(data, bytes, rank, kPullTag));
  }
  for (const Request request : pending) call.comm.wait(request);
}

void receive_from_server(const Call& call) {
  const std::size_t bytes = call.layout.count * element_bytes(call.type);
  call.comm.wait(call.comm.irecv(call.out, bytes, call.layout.root, kPullTag));
}

}  // namespace

void run_push(const Call& call, PhaseTimes& times) {
  if (call.comm.rank() == call.layout.root) {
    PushReceiver(call).run(times);
  } else {
    send_segments(call);
  }
}

void run_pull(const Call& call, PhaseTimes& /*times*/) {
  if (call.comm.rank() == call.layout.root) {
    send_to_workers(call, call.in);
  } else {
    receive_from_server(call);
  }
}

void run_push_pull(const Call& call, PhaseTimes& times) {
  run_push(call, times);
  if (call.comm.rank() == call.layout.root) {
    send_to_workers(call, call.out);
  } else {
    receive_from_server(call);
  }
}

std::size_t push_scratch(const Layout& layout, const Place& place, DataType type,
                         std::size_t segment_bytes) {
  if (place.rank != layout.root) return 0;
  const Segments segments(layout.count, type, segment_bytes);
  return kSlots * static_cast<std::size_t>(place.ranks - 1) * segments.per_segment *
         element_bytes(type);
}

}  // namespace dynamiccl
