#include "train/exchange/ring_halves.hpp"

#include <algorithm>

#include "train/exchange/packing.hpp"
#include "workers/collectives/sum.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

/// Values of a frame: 128 KiB unpacked, a millisecond of a link of 1 Gbit/s.
constexpr std::size_t kFrame = 32768;
/// So many frames are sent before the first one is awaited.
constexpr std::size_t kAhead = 2;

std::size_t frames_of(std::size_t count) { return (count + kFrame - 1) / kFrame; }
std::size_t values_in(std::size_t count, std::size_t frame) {
  return std::min(kFrame, count - frame * kFrame);
}

}  // namespace

RingHalves::RingHalves(Messages& comm, const ExchangePlan& plan, float* gradients)
    : comm_(comm), plan_(plan), gradients_(gradients) {
  std::size_t largest = 0;
  for (const auto& piece : plan.pieces) largest = std::max(largest, piece.count);
  const bool packed = plan.packing == Packing::exponents;
  const std::size_t part = swaps() ? largest : largest / static_cast<std::size_t>(comm.size()) + 1;
  received_.resize(packed ? std::min(part, kFrame) : part);
  if (!packed) return;
  for (Slot& slot : slots_) {
    slot.sent.resize(packed_limit(received_.size()));
    slot.received.resize(packed_limit(received_.size()));
  }
}

std::size_t RingHalves::extra_bytes() const {
  std::size_t bytes = received_.size() * sizeof(float);
  for (const Slot& slot : slots_) bytes += slot.sent.size() + slot.received.size();
  return bytes;
}

/// Numbers count modulo the ranks.
RingHalves::Part RingHalves::part(std::size_t index, int number) const {
  const Piece& piece = plan_.pieces[index];
  const auto ranks = static_cast<std::size_t>(comm_.size());
  const std::size_t k = static_cast<std::size_t>(number + 2 * comm_.size()) % ranks;
  const std::size_t begin = part_begin(piece.count, ranks, k);
  const std::size_t end = part_begin(piece.count, ranks, k + 1);
  return {gradients_ + piece.offset + begin, end - begin};
}

void RingHalves::reduce_scatter(std::size_t piece) {
  for (int round = 0; round < comm_.size() - 1; ++round)
    pass(part(piece, comm_.rank() - round), part(piece, comm_.rank() - round - 1), What::add);
}

void RingHalves::all_gather(std::size_t piece) {
  for (int round = 0; round < comm_.size() - 1; ++round)
    pass(part(piece, comm_.rank() + 1 - round), part(piece, comm_.rank() - round), What::replace);
}

void RingHalves::all_reduce(std::size_t piece) {
  if (swaps()) {
    const Part whole{gradients_ + plan_.pieces[piece].offset, plan_.pieces[piece].count};
    return pass_packed(whole, whole, What::add);
  }
  reduce_scatter(piece);
  all_gather(piece);
}

void RingHalves::pass(Part send, Part into, What what) {
  if (plan_.packing == Packing::exponents) return pass_packed(send, into, what);
  // What is added lands next to its place first.
  float* to = what == What::add ? received_.data() : into.data;
  exchange(comm_, send.data, send.count * sizeof(float), next(), to, into.count * sizeof(float),
           before(), kHalfTag);
  sent_bytes_ += send.count * sizeof(float);
  if (what == What::add) sum_elements(into.data, into.data, to, into.count, DataType::float32);
}

/// A frame is taken after the frame of the same number has been packed: `send` and `into` may be
/// one. No turn waits for what other ranks do later than two turns before it, so none waits
/// forever.
void RingHalves::pass_packed(Part send, Part into, What what) {
  const std::size_t sends = frames_of(send.count);
  const std::size_t takes = frames_of(into.count);
  for (std::size_t frame = 0; frame < std::min(takes, kUnderWay); ++frame) post_frame(into, frame);
  for (std::size_t turn = 0; turn < std::max(sends, takes + kAhead); ++turn) {
    if (turn < sends) {
      if (turn >= kUnderWay) comm_.wait(slots_[turn % kUnderWay].sending);
      send_frame(send, turn);
    }
    if (turn < kAhead || turn - kAhead >= takes) continue;
    take_frame(into, turn - kAhead, what);
    if (turn - kAhead + kUnderWay < takes) post_frame(into, turn - kAhead + kUnderWay);
  }
  for (std::size_t frame = sends - std::min(sends, kUnderWay); frame < sends; ++frame)
    comm_.wait(slots_[frame % kUnderWay].sending);
}

void RingHalves::send_frame(Part send, std::size_t frame) {
  Slot& slot = slots_[frame % kUnderWay];
  const std::size_t bytes =
      pack_exponents(send.data + frame * kFrame, values_in(send.count, frame), slot.sent.data());
  slot.sending = comm_.isend(slot.sent.data(), bytes, next(), kHalfTag);
  sent_bytes_ += bytes;
}

/// A frame may be shorter than the room for it.
void RingHalves::post_frame(Part into, std::size_t frame) {
  Slot& slot = slots_[frame % kUnderWay];
  slot.receiving = comm_.irecv(slot.received.data(), packed_limit(values_in(into.count, frame)),
                               before(), kHalfTag);
}

void RingHalves::take_frame(Part into, std::size_t frame, What what) {
  Slot& slot = slots_[frame % kUnderWay];
  comm_.wait(slot.receiving);
  float* at = into.data + frame * kFrame;
  const std::size_t count = values_in(into.count, frame);
  unpack_exponents(slot.received.data(), count, what == What::add ? received_.data() : at);
  if (what == What::replace) return;
  // In the order of ranks where both sum the same: of two NaNs the first one stays.
  const bool first = comm_.rank() == 0 || !swaps();
  sum_elements(at, first ? at : received_.data(), first ? received_.data() : at, count,
               DataType::float32);
}

}  // namespace dynamiccl
