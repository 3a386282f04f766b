#include "workers/train/exchange/queued_exchange.hpp"

#include <algorithm>

namespace dynamiccl {
namespace {

/// Each piece goes where fewest bytes went before it: the same on every rank, and no lane is left
/// with more than a piece when the others are done.
std::vector<std::size_t> shared_out(const ExchangePlan& plan) {
  std::vector<std::size_t> lanes;
  std::vector<std::size_t> load(plan.path.lanes, 0);
  for (const Piece& piece : plan.pieces) {
    const auto least = std::min_element(load.begin(), load.end());
    lanes.push_back(static_cast<std::size_t>(least - load.begin()));
    *least += piece.count;
  }
  return lanes;
}

}  // namespace

QueuedExchange::QueuedExchange(Communicator& comm, const ExchangePlan& plan, float* gradients,
                               TensorMemory& memory)
    : comm_(comm),
      queue_(*comm.queue()),
      plan_(plan),
      gradients_(gradients),
      memory_(memory),
      lane_of_(shared_out(plan)),
      followed_(plan.path.lanes, false),
      split_(plan.method == TrainingMethod::dear),
      missing_(plan.pieces.size(), 0),
      awaited_(plan.pieces.size(), true) {}

void QueuedExchange::start_step() {
  for (std::size_t i = 0; i < plan_.pieces.size(); ++i)
    missing_[i] = plan_.pieces[i].last - plan_.pieces[i].first;
  std::fill(awaited_.begin(), awaited_.end(), false);
  next_ = 0;
}

void QueuedExchange::ready(std::size_t gradient) {
  const auto [first, last] = pieces_of(plan_.pieces, gradient);
  for (std::size_t i = first; i < last; ++i) --missing_[i];
  if (next_ == missing_.size() || missing_[next_] > 0) return;
  memory_.flush_copies();
  comm_.enter_thread();  // the backward pass has a thread of its own
  std::fill(followed_.begin(), followed_.end(), false);
  // In the plan's order on every rank, whatever the order in which gradients come.
  for (; next_ < missing_.size() && missing_[next_] == 0; ++next_) reduce(next_);
  if (split_ && next_ == missing_.size()) {
    for (std::size_t i = plan_.pieces.size(); i-- > 0;) {
      queue_.use_lane(lane_of_[i]);
      gather_sums(plan_.pieces[i]);
      summed(i);
    }
  }
  queue_.use_lane(0);
}

/// What the lane is given from now on comes after the gradients that are ready.
void QueuedExchange::use_lane_of(std::size_t index) {
  const std::size_t lane = lane_of_[index];
  queue_.use_lane(lane);
  if (followed_[lane]) return;
  queue_.follow(memory_.stream());
  followed_[lane] = true;
}

/// The weights of these gradients are done with: the backward pass is below them.
void QueuedExchange::summed(std::size_t index) {
  queue_.note(index);
  if (!apply_) return;
  const Piece& piece = plan_.pieces[index];
  memory_.aside(queue_, index, [&] { apply_(piece.first, piece.last); });
}

void QueuedExchange::reduce(std::size_t index) {
  use_lane_of(index);
  const Piece& piece = plan_.pieces[index];
  const auto ranks = static_cast<std::uint64_t>(comm_.size());
  sent_bytes_ += 2 * piece.count * sizeof(float) * (ranks - 1) / ranks;
  if (split_) return scatter_sums(piece);
  float* data = gradients_ + piece.offset;
  if (ranks > 1) comm_.allreduce(data, data, piece.count, DataType::float32);
  summed(index);
}

/// Each rank gets the sums of its part; what does not divide among the ranks is summed at once.
void QueuedExchange::scatter_sums(const Piece& piece) {
  const auto ranks = static_cast<std::size_t>(comm_.size());
  if (ranks == 1) return;
  const std::size_t part = piece.count / ranks;
  float* data = gradients_ + piece.offset;
  if (part > 0)
    comm_.reduce_scatter(data, data + static_cast<std::size_t>(comm_.rank()) * part, part,
                         DataType::float32);
  const std::size_t rest = piece.count - ranks * part;
  if (rest > 0) comm_.allreduce(data + ranks * part, data + ranks * part, rest, DataType::float32);
}

void QueuedExchange::gather_sums(const Piece& piece) {
  const auto ranks = static_cast<std::size_t>(comm_.size());
  const std::size_t part = piece.count / ranks;
  if (ranks == 1 || part == 0) return;
  float* data = gradients_ + piece.offset;
  comm_.allgather(data + static_cast<std::size_t>(comm_.rank()) * part, data, part,
                  DataType::float32);
}

void QueuedExchange::wait(std::size_t gradient) {
  const auto [first, last] = pieces_of(plan_.pieces, gradient);
  for (std::size_t index = first; index < last; ++index) {
    if (awaited_[index]) continue;
    if (apply_) {
      memory_.join(index);
    } else {
      queue_.hold_back(memory_.stream(), index);
    }
    awaited_[index] = true;
  }
}

bool can_be_queued(Communicator& comm, const ExchangePlan& plan) {
  if (comm.queue() == nullptr || plan.servers > 0 || plan.packing != Packing::none) return false;
  // ByteScheduler chooses by what is ready when credit comes back. The others never cut a gradient.
  return plan.method != TrainingMethod::bytescheduler_a2a && plan.method != TrainingMethod::ddp;
}

std::unique_ptr<StepExchange> make_exchange(Communicator& comm, const ExchangePlan& plan,
                                            float* gradients, float* sums, TensorMemory& memory) {
  if (memory.on_gpu() && can_be_queued(comm, plan))
    return std::make_unique<QueuedExchange>(comm, plan, gradients, memory);
  // Host memory is written when a call returns: nothing to wait for.
  return std::make_unique<GradientExchange>(comm, plan, gradients, sums,
                                            memory.on_gpu() ? &memory : nullptr);
}

}  // namespace dynamiccl
