#include "workers/collectives/ring.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "workers/collectives/sum.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

/// The vector cut into one chunk per rank, each chunk into the same number of segments. Step s of
/// segment j is stage s * segments + j; neighbours agree on every stage's length.
struct Cuts {
  std::size_t elements;
  std::size_t ranks;
  std::size_t segments;
  std::size_t width;

  Cuts(std::size_t total, int rank_count, DataType type, std::size_t segment_bytes)
      : elements(total),
        ranks(static_cast<std::size_t>(rank_count)),
        segments(1),
        width(element_bytes(type)) {
    segments =
        std::max<std::size_t>(1, (largest_chunk() * width + segment_bytes - 1) / segment_bytes);
  }
  [[nodiscard]] std::size_t largest_chunk() const { return (elements + ranks - 1) / ranks; }
  [[nodiscard]] std::size_t largest_segment() const {
    return (largest_chunk() + segments - 1) / segments;
  }
  /// Elements of a segment, counted from the vector's start; chunk may exceed the rank count.
  [[nodiscard]] Cut segment(std::size_t chunk, std::size_t index) const {
    const Cut whole = cut_of(elements, ranks, chunk % ranks);
    const Cut part = cut_of(whole.count, segments, index);
    return {whole.begin + part.begin, part.count};
  }
};

/// The messages in flight in each direction, `depth` at most: receives are posted ahead of need, so
/// that a neighbour never waits for one. Empty segments are not sent: both sides know.
class Pipe {
 public:
  Pipe(Messages& comm, std::size_t width, std::size_t depth)
      : comm_(comm),
        right_((comm.rank() + 1) % comm.size()),
        left_((comm.rank() + comm.size() - 1) % comm.size()),
        width_(width),
        receives_(depth),
        sends_(depth) {}

  void post_receive(std::size_t stage, std::byte* to, std::size_t count) {
    Slot& slot = receives_[stage % receives_.size()];
    slot.active = count > 0;
    if (slot.active) slot.request = comm_.irecv(to, count * width_, left_, kRingTag);
  }
  void send(std::size_t stage, const std::byte* from, std::size_t count) {
    Slot& slot = sends_[stage % sends_.size()];
    finish(slot);
    slot.active = count > 0;
    if (slot.active) slot.request = comm_.isend(from, count * width_, right_, kRingTag);
  }
  void wait_receive(std::size_t stage) { finish(receives_[stage % receives_.size()]); }
  void wait_sends() {
    for (Slot& slot : sends_) finish(slot);
  }

 private:
  struct Slot {
    Request request{};
    bool active = false;
  };
  void finish(Slot& slot) {
    if (slot.active) comm_.wait(slot.request);
    slot.active = false;
  }

  Messages& comm_;
  int right_;
  int left_;
  std::size_t width_;
  std::vector<Slot> receives_;
  std::vector<Slot> sends_;
};

void copy_if_apart(std::byte* out, const std::byte* in, std::size_t bytes) {
  if (out != in) std::memcpy(out, in, bytes);
}

}  // namespace

Cut cut_of(std::size_t total, std::size_t parts, std::size_t index) {
  const std::size_t small = total / parts;
  const std::size_t extra = total % parts;
  return {index * small + std::min(index, extra), small + (index < extra ? 1 : 0)};
}

void ring_allreduce(Messages& comm, const RingSum& call) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto rank = static_cast<std::size_t>(comm.rank());
  const std::size_t width = element_bytes(call.type);
  if (ranks == 1) return copy_if_apart(call.out, call.in, call.count * width);
  const Cuts cuts(call.count, comm.size(), call.type, call.pipelining.segment_bytes);
  const std::size_t stages = 2 * (ranks - 1) * cuts.segments;
  const std::size_t summing = (ranks - 1) * cuts.segments;
  const std::size_t slot_bytes = cuts.largest_segment() * width;
  const std::size_t depth = call.pipelining.depth;
  Pipe pipe(comm, width, depth);

  // In step s a rank sends chunk rank-s and receives chunk rank-s-1.
  const auto received = [&](std::size_t stage) {
    return cuts.segment(rank + 2 * ranks - stage / cuts.segments - 1, stage % cuts.segments);
  };
  const auto post = [&](std::size_t stage) {
    if (stage >= stages) return;
    const Cut range = received(stage);
    // Sums arrive in scratch and are added on; finished sums arrive where they belong.
    std::byte* to = stage < summing ? call.scratch + (stage % depth) * slot_bytes
                                    : call.out + range.begin * width;
    pipe.post_receive(stage, to, range.count);
  };
  // In place, two ranks post the receive of a sum over a chunk still being sent: safe, as the sum
  // cannot come back before the neighbour has the whole chunk.
  for (std::size_t stage = 0; stage < depth; ++stage) post(stage);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const std::size_t step = stage / cuts.segments;
    const Cut sent = cuts.segment(rank + 2 * ranks - step, stage % cuts.segments);
    const std::byte* from = step == 0 ? call.in : call.out;
    pipe.send(stage, from + sent.begin * width, sent.count);
    pipe.wait_receive(stage);
    if (stage < summing) {
      const Cut range = received(stage);
      const std::size_t at = range.begin * width;
      sum_elements(call.out + at, call.in + at, call.scratch + (stage % depth) * slot_bytes,
                   range.count, call.type);
    }
    post(stage + depth);
  }
  pipe.wait_sends();
}

void run_ring_allreduce(const Call& call, PhaseTimes& /*times*/) {
  ring_allreduce(call.comm,
                 {call.in, call.out, call.scratch, call.layout.count, call.type, call.pipelining});
}

std::size_t ring_allreduce_scratch(std::size_t count, int ranks, DataType type,
                                   const Pipelining& pipelining) {
  // Of as many elements or fewer, which may be cut into longer segments.
  const std::size_t width = element_bytes(type);
  const std::size_t chunk = (count / static_cast<std::size_t>(ranks) + 1) * width;
  return pipelining.depth * std::min(chunk, pipelining.segment_bytes + width);
}

void run_ring_allgather(const Call& call, PhaseTimes& /*times*/) {
  const auto ranks = static_cast<std::size_t>(call.comm.size());
  const auto rank = static_cast<std::size_t>(call.comm.rank());
  const std::size_t width = element_bytes(call.type);
  const std::size_t count = call.layout.count;
  copy_if_apart(call.out + rank * count * width, call.in, count * width);
  if (ranks == 1) return;
  const Cuts cuts(count * ranks, call.comm.size(), call.type, call.pipelining.segment_bytes);
  const std::size_t stages = (ranks - 1) * cuts.segments;
  const std::size_t depth = call.pipelining.depth;
  Pipe pipe(call.comm, width, depth);
  const auto post = [&](std::size_t stage) {
    if (stage >= stages) return;
    const Cut range = cuts.segment(rank + ranks - stage / cuts.segments - 1, stage % cuts.segments);
    pipe.post_receive(stage, call.out + range.begin * width, range.count);
  };
  for (std::size_t stage = 0; stage < depth; ++stage) post(stage);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const Cut sent = cuts.segment(rank + ranks - stage / cuts.segments, stage % cuts.segments);
    pipe.send(stage, call.out + sent.begin * width, sent.count);
    pipe.wait_receive(stage);
    post(stage + depth);
  }
  pipe.wait_sends();
}

void run_ring_reduce_scatter(const Call& call, PhaseTimes& /*times*/) {
  const auto ranks = static_cast<std::size_t>(call.comm.size());
  const auto rank = static_cast<std::size_t>(call.comm.rank());
  const std::size_t width = element_bytes(call.type);
  const std::size_t count = call.layout.count;
  if (ranks == 1) return copy_if_apart(call.out, call.in, count * width);
  const Cuts cuts(count * ranks, call.comm.size(), call.type, call.pipelining.segment_bytes);
  const std::size_t stages = (ranks - 1) * cuts.segments;
  const std::size_t slot_bytes = cuts.largest_segment() * width;
  // A sum waits `segments` stages to be sent on, its send may last `depth` more.
  const std::size_t slots = cuts.segments + 2 * call.pipelining.depth;
  const auto slot = [&](std::size_t stage) { return call.scratch + (stage % slots) * slot_bytes; };
  const std::size_t depth = call.pipelining.depth;
  Pipe pipe(call.comm, width, depth);

  // In step s a rank sends chunk rank-s-1 and receives chunk rank-s-2; the last one is its own.
  const auto received = [&](std::size_t stage) {
    return cuts.segment(rank + 2 * ranks - stage / cuts.segments - 2, stage % cuts.segments);
  };
  const auto post = [&](std::size_t stage) {
    if (stage < stages) pipe.post_receive(stage, slot(stage), received(stage).count);
  };
  for (std::size_t stage = 0; stage < depth; ++stage) post(stage);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const std::size_t step = stage / cuts.segments;
    const Cut sent = cuts.segment(rank + 2 * ranks - step - 1, stage % cuts.segments);
    pipe.send(stage, step == 0 ? call.in + sent.begin * width : slot(stage - cuts.segments),
              sent.count);
    pipe.wait_receive(stage);
    const Cut range = received(stage);
    const bool last = step == ranks - 2;
    std::byte* to = last ? call.out + (range.begin - rank * count) * width : slot(stage);
    sum_elements(to, call.in + range.begin * width, slot(stage), range.count, call.type);
    post(stage + depth);
  }
  pipe.wait_sends();
}

std::size_t ring_scratch(const Layout& layout, const Place& place, DataType type,
                         const Pipelining& pipelining) {
  // reduce_scatter needs a chunk and some segments; allreduce's slots are less.
  const std::size_t elements = std::max(layout.in_elements, layout.count);
  const Cuts cuts(elements, place.ranks, type, pipelining.segment_bytes);
  return (cuts.segments + 2 * pipelining.depth) * cuts.largest_segment() * cuts.width;
}

}  // namespace dynamiccl
