#include "workers/collectives/parameter_server.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "workers/clock.hpp"
#include "workers/collectives/sum.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

/// A part of the vector, in elements.
struct Part {
  std::size_t begin;
  std::size_t count;
};

/// Shard `index` of the whole; shards differ by at most one element, and none is empty.
Part shard_of(std::size_t total, std::size_t shards, std::size_t index) {
  const std::size_t parts = std::clamp<std::size_t>(shards, 1, std::max<std::size_t>(total, 1));
  const std::size_t small = total / parts;
  const std::size_t extra = total % parts;
  return {index * small + std::min(index, extra), small + (index < extra ? 1 : 0)};
}

std::size_t shard_count(const Call& call) {
  return std::clamp<std::size_t>(call.pipelining.shards, 1,
                                 std::max<std::size_t>(call.layout.count, 1));
}

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

void send_segments(const Call& call, const Part& part) {
  const Segments segments(part.count, call.type, call.pipelining.segment_bytes);
  const std::size_t width = element_bytes(call.type);
  const std::byte* from = call.in + part.begin * width;
  std::vector<Request> pending(call.pipelining.depth);
  for (std::size_t i = 0; i < segments.count; ++i) {
    if (i >= pending.size()) call.comm.wait(pending[i % pending.size()]);
    pending[i % pending.size()] =
        call.comm.isend(from + i * segments.per_segment * width, segments.length(i) * width,
                        call.layout.root, kPushTag);
  }
  const std::size_t open = std::min(segments.count, pending.size());
  for (std::size_t i = segments.count - open; i < segments.count; ++i)
    call.comm.wait(pending[i % pending.size()]);
}

/// The server's side of a push: segments of all workers arrive side by side.
class PushReceiver {
 public:
  PushReceiver(const Call& call, const Part& part)
      : call_(call),
        segments_(part.count, call.type, call.pipelining.segment_bytes),
        width_(element_bytes(call.type)),
        sum_(call.out + part.begin * width_),
        workers_(static_cast<std::size_t>(call.comm.size()) - 1),
        depth_(call.pipelining.depth),
        pending_(depth_ * workers_) {}

  void run(PhaseTimes& times) {
    for (std::size_t i = 0; i < std::min(depth_, segments_.count); ++i) post(i);
    for (std::size_t i = 0; i < segments_.count; ++i) {
      for (std::size_t worker = 0; worker < workers_; ++worker) {
        call_.comm.wait(pending_[(i % depth_) * workers_ + worker]);
        const double start_us = now_us();
        add(i, worker);
        times.compute_us += now_us() - start_us;
      }
      if (i + depth_ < segments_.count) post(i + depth_);
    }
  }

 private:
  std::byte* slot(std::size_t segment, std::size_t worker) {
    return call_.scratch +
           ((segment % depth_) * workers_ + worker) * segments_.per_segment * width_;
  }
  void post(std::size_t segment) {
    for (std::size_t worker = 0; worker < workers_; ++worker) {
      const int rank = static_cast<int>(worker) < call_.layout.root ? static_cast<int>(worker)
                                                                    : static_cast<int>(worker) + 1;
      pending_[(segment % depth_) * workers_ + worker] = call_.comm.irecv(
          slot(segment, worker), segments_.length(segment) * width_, rank, kPushTag);
    }
  }
  void add(std::size_t segment, std::size_t worker) {
    std::byte* sum = sum_ + segment * segments_.per_segment * width_;
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
  std::byte* sum_;
  std::size_t workers_;
  std::size_t depth_;
  std::vector<Request> pending_;
};

/// Starts sending a part to every worker.
void start_answers(const Call& call, const std::byte* data, const Part& part,
                   std::vector<Request>& pending) {
  const std::size_t width = element_bytes(call.type);
  for (int rank = 0; rank < call.comm.size(); ++rank)
    if (rank != call.layout.root)
      pending.push_back(
          call.comm.isend(data + part.begin * width, part.count * width, rank, kPullTag));
}

Request start_receiving(const Call& call, const Part& part) {
  const std::size_t width = element_bytes(call.type);
  return call.comm.irecv(call.out + part.begin * width, part.count * width, call.layout.root,
                         kPullTag);
}

Part whole(const Call& call) { return {0, call.layout.count}; }

}  // namespace

void run_push(const Call& call, PhaseTimes& times) {
  if (call.comm.rank() == call.layout.root) {
    PushReceiver(call, whole(call)).run(times);
  } else {
    send_segments(call, whole(call));
  }
}

void run_pull(const Call& call, PhaseTimes& /*times*/) {
  std::vector<Request> pending;
  if (call.comm.rank() == call.layout.root) {
    start_answers(call, call.in, whole(call), pending);
  } else {
    pending.push_back(start_receiving(call, whole(call)));
  }
  for (const Request request : pending) call.comm.wait(request);
}

void run_push_pull(const Call& call, PhaseTimes& times) {
  const std::size_t shards = shard_count(call);
  const bool server = call.comm.rank() == call.layout.root;
  std::vector<Request> pending;
  pending.reserve(shards * static_cast<std::size_t>(call.comm.size()));
  // Answers are awaited before the first is due: a shard's way back overlaps the next one's way in.
  for (std::size_t i = 0; i < shards && !server; ++i)
    pending.push_back(start_receiving(call, shard_of(call.layout.count, shards, i)));
  for (std::size_t i = 0; i < shards; ++i) {
    const Part part = shard_of(call.layout.count, shards, i);
    if (server) {
      PushReceiver(call, part).run(times);
      start_answers(call, call.out, part, pending);
    } else {
      send_segments(call, part);
    }
  }
  for (const Request request : pending) call.comm.wait(request);
}

std::size_t push_scratch(const Layout& layout, const Place& place, DataType type,
                         const Pipelining& pipelining) {
  if (place.rank != layout.root) return 0;
  const Segments segments(layout.count, type, pipelining.segment_bytes);
  return pipelining.depth * static_cast<std::size_t>(place.ranks - 1) * segments.per_segment *
         element_bytes(type);
}

void run_gpu_push(const Call& call, PhaseTimes& /*times*/) {
  const bool server = call.comm.rank() == call.layout.root;
  call.comm.reduce(server ? call.scratch : call.in, server ? call.out : nullptr, call.layout.count,
                   call.type, call.layout.root);
}

void run_gpu_pull(const Call& call, PhaseTimes& /*times*/) {
  const bool server = call.comm.rank() == call.layout.root;
  // The root's buffer is only read.
  call.comm.broadcast(server ? const_cast<std::byte*>(call.in) : call.out, call.layout.count,
                      call.type, call.layout.root);
}

void run_gpu_push_pull(const Call& call, PhaseTimes& times) {
  run_gpu_push(call, times);
  call.comm.broadcast(call.out, call.layout.count, call.type, call.layout.root);
}

std::size_t gpu_push_scratch(const Layout& layout, const Place& place, DataType type,
                             const Pipelining& /*pipelining*/) {
  return place.rank == layout.root ? layout.count * element_bytes(type) : 0;
}

}  // namespace dynamiccl
