#include "train/exchange/queued_exchange.hpp"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "train/exchange/gradient_exchange.hpp"
#include "workers/clock.hpp"

namespace dynamiccl {

QueuedExchange::QueuedExchange(Communicator& comm, const ExchangePlan& plan, float* gradients,
                               TensorMemory& memory, CallSettings* settings)
    : comm_(comm),
      queue_(*comm.queue()),
      plan_(plan),
      gradients_(gradients),
      memory_(memory),
      stripes_(stripes_of(plan, comm.size())),
      followed_(plan.path.lanes, false),
      split_(method_row(plan.method).split),
      missing_(plan.pieces.size(), 0),
      awaited_(plan.pieces.size(), true),
      settings_(settings) {
  if (plan_.codec.codec != Codec::none)
    codec_ = make_queued_codec(comm_, plan_, gradients_, memory_);
}

void QueuedExchange::start_step() {
  for (std::size_t i = 0; i < plan_.pieces.size(); ++i)
    missing_[i] = plan_.pieces[i].last - plan_.pieces[i].first;
  std::fill(awaited_.begin(), awaited_.end(), false);
  if (codec_) codec_->begin_step();
  next_ = 0;
  traces_ = std::exchange(trace_wanted_, false);
  if (settings_ == nullptr) return;
  spans_.clear();
  settings_->begin_step();
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
      for (const Stripe& stripe : stripes_[i]) {
        queue_.use_lane(stripe.lane);
        call("all-gather", i, stripe, [&] { gather_sums(stripe); });
        queued(i, stripe);
      }
      summed(i);
    }
  }
  queue_.use_lane(0);
}

/// What the lane is given from now on comes after the gradients that are ready.
void QueuedExchange::use_lane(std::size_t lane) {
  queue_.use_lane(lane);
  if (followed_[lane]) return;
  queue_.follow(memory_.stream());
  followed_[lane] = true;
}

template <class F>
void QueuedExchange::call(const char* what, std::size_t index, const Stripe& stripe, F&& library) {
  if (!traces_ && settings_ == nullptr) return library();
  const std::size_t bytes = stripes_[index].size() > 1 ? stripe.count * sizeof(float) : 0;
  spans_.push_back({what, index, 0, 0, stripe.lane, bytes});
  queue_.stamp(2 * spans_.size() - 1);
  library();
  queue_.stamp(2 * spans_.size());
}

void QueuedExchange::trace_next() {
  spans_.clear();
  trace_wanted_ = true;
}

/// Stripes of one piece go on side by side.
void QueuedExchange::end_step() {
  if (settings_ == nullptr) return;
  comm_.complete();
  std::vector<double> call_us(plan_.pieces.size(), 0);
  for (std::size_t i = 0; i < spans_.size(); ++i)
    call_us[spans_[i].piece] =
        std::max(call_us[spans_[i].piece], queue_.between_us(2 * i + 1, 2 * i + 2));
  settings_->end_step(call_us);
}

std::vector<Span> QueuedExchange::take_spans() {
  if (spans_.empty() || (settings_ != nullptr && !std::exchange(traces_, false))) return {};
  // The GPU's clock meets ours where nothing is under way.
  comm_.complete();
  queue_.stamp(0);
  comm_.complete();
  const double met_us = now_us();
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    spans_[i].start_us = met_us - queue_.between_us(2 * i + 1, 0);
    spans_[i].end_us = met_us - queue_.between_us(2 * i + 2, 0);
  }
  encode_us_ = decode_us_ = 0;
  for (const Span& span : spans_) {
    const std::string_view what = span.what;
    if (what == "encode") encode_us_ += span.end_us - span.start_us;
    if (what == "decode") decode_us_ += span.end_us - span.start_us;
  }
  return std::exchange(spans_, {});
}

std::optional<CodingFigures> QueuedExchange::take_coding() {
  if (!codec_) return std::nullopt;
  CodingFigures coding = codec_->take_coding();
  coding.encode_us = coding.steps * std::exchange(encode_us_, 0);
  coding.decode_us = coding.steps * std::exchange(decode_us_, 0);
  return coding;
}

/// Whoever waits for the piece waits for what its lanes hold so far.
void QueuedExchange::queued(std::size_t index, const Stripe& stripe) {
  if (stripe.offset == plan_.pieces[index].offset) {
    queue_.note(index);
  } else {
    queue_.note_also(index);
  }
}

/// The weights of these gradients are done with: the backward pass is below them.
void QueuedExchange::summed(std::size_t index) {
  if (!apply_) return;
  const Piece& piece = plan_.pieces[index];
  memory_.aside(queue_, index, [&] { apply_(piece.first, piece.last); });
}

void QueuedExchange::reduce_encoded(std::size_t index) {
  const Stripe& stripe = stripes_[index].front();
  use_lane(0);
  codec_->sum(index, [&](const char* what, const std::function<void()>& work) {
    call(what, index, stripe, work);
  });
  queued(index, stripe);
  summed(index);
}

void QueuedExchange::reduce(std::size_t index) {
  if (codec_) return reduce_encoded(index);
  const Piece& piece = plan_.pieces[index];
  const auto ranks = static_cast<std::uint64_t>(comm_.size());
  sent_bytes_ += 2 * piece.count * sizeof(float) * (ranks - 1) / ranks;
  if (settings_ != nullptr) settings_->choose_for(index);
  for (const Stripe& stripe : stripes_[index]) {
    use_lane(stripe.lane);
    if (split_) {
      call("reduce-scatter", index, stripe, [&] { scatter_sums(stripe); });
      continue;
    }
    float* data = gradients_ + stripe.offset;
    call("reduce", index, stripe, [&] {
      if (ranks > 1) comm_.allreduce(data, data, stripe.count, DataType::float32);
    });
    queued(index, stripe);
  }
  if (!split_) summed(index);
}

/// Each rank gets the sums of its part; what does not divide among the ranks is summed at once.
void QueuedExchange::scatter_sums(const Stripe& stripe) {
  const auto ranks = static_cast<std::size_t>(comm_.size());
  if (ranks == 1) return;
  const std::size_t part = stripe.count / ranks;
  float* data = gradients_ + stripe.offset;
  if (part > 0)
    comm_.reduce_scatter(data, data + static_cast<std::size_t>(comm_.rank()) * part, part,
                         DataType::float32);
  const std::size_t rest = stripe.count - ranks * part;
  if (rest > 0) comm_.allreduce(data + ranks * part, data + ranks * part, rest, DataType::float32);
}

void QueuedExchange::gather_sums(const Stripe& stripe) {
  const auto ranks = static_cast<std::size_t>(comm_.size());
  const std::size_t part = stripe.count / ranks;
  if (ranks == 1 || part == 0) return;
  float* data = gradients_ + stripe.offset;
  comm_.allgather(data + static_cast<std::size_t>(comm_.rank()) * part, data, part,
                  DataType::float32);
}

void QueuedExchange::wait(std::size_t gradient) {
  const auto [first, last] = pieces_of(plan_.pieces, gradient);
  for (std::size_t index = first; index < last; ++index) {
    if (awaited_[index]) continue;
    // Its note would be that of the step before.
    DYN_ASSERT(
        index < next_ && (!split_ || next_ == plan_.pieces.size()),
        "a sum is waited for before it was queued: a parameter has no gradient in this step");
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
  if (is_encoded_by_host(plan.codec)) return false;
  // ByteScheduler chooses by what is ready when credit comes back. The others never cut a gradient.
  const TrainingMethodRow& method = method_row(plan.method);
  return method.order != SendOrder::by_urgency && !method.engine;
}

std::unique_ptr<StepExchange> make_exchange(Communicator& comm, const ExchangePlan& plan,
                                            float* gradients, float* sums, TensorMemory& memory,
                                            CallSettings* settings) {
  if (memory.on_gpu() && can_be_queued(comm, plan))
    return std::make_unique<QueuedExchange>(comm, plan, gradients, memory, settings);
  // Host memory is written when a call returns: nothing to wait for.
  return std::make_unique<GradientExchange>(comm, plan, gradients, sums,
                                            memory.on_gpu() ? &memory : nullptr, settings);
}

}  // namespace dynamiccl
