#include "train/synchronise/worker_group.hpp"

#include <algorithm>
#include <numeric>

#include "workers/clock.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {

namespace {

/// Workers are the ranks from 1 on.
std::vector<int> ranks_of_group(int worker, int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 1 + worker / size * size);
  return ranks;
}

}  // namespace

ExchangePlan group_plan(const ExchangePlan& plan, const TrainingSpec& spec) {
  ExchangePlan within = plan;
  within.codec = group_codec_settings(spec);
  return within;
}

std::size_t group_limit_bytes(const ExchangePlan& plan, const TrainingSpec& spec) {
  if (spec.group_size == 1) return 0;
  if (spec.group_compression == Codec::none) return plan.elements() * sizeof(float);
  const ExchangePlan within = group_plan(plan, spec);
  std::size_t message = 0;
  for (std::size_t i = 0; i < within.pieces.size(); ++i)
    message += message_bytes(within, i, 0).value_or(within.pieces[i].count * sizeof(float));
  return static_cast<std::size_t>(spec.group_size) * message +
         (within.codec.feedback ? plan.elements() * sizeof(float) : 0);
}

WorkerGroup::WorkerGroup(Messages& all, const ExchangePlan& plan, int worker, int workers, int size,
                         float* gradients)
    : plan_(plan), group_(all, ranks_of_group(worker, size)), gradients_(gradients) {
  if (plan_.codec.codec == Codec::none) {
    ring_.emplace(group_, plan_, gradients);
    return;
  }
  codec_.emplace(plan_, worker, workers);
  decoder_.emplace(plan_);
  frames_.resize(static_cast<std::size_t>(size));
}

/// Frames of one size go from each to each and are added in rank order, so that all have the same
/// bits.
GroupSum WorkerGroup::sum_encoded() {
  codec_->begin_step();
  const auto own = static_cast<std::size_t>(group_.rank());
  const std::size_t bytes = codec_->encode_all(gradients_, frames_[own]);
  const std::uint64_t step = codec_->codec().step();
  GroupSum sum{bytes, now_us(), 0};
  std::vector<Request> requests;
  for (std::size_t from = 0; from < frames_.size(); ++from) {
    if (from == own) continue;
    frames_[from].resize(bytes);
    const int rank = static_cast<int>(from);
    requests.push_back(group_.irecv(frames_[from].data(), bytes, rank, kGroupTag));
    requests.push_back(group_.isend(frames_[own].data(), bytes, rank, kGroupTag));
    sent_bytes_ += bytes;
  }
  for (const Request request : requests) group_.wait(request);
  sum.end_us = now_us();
  std::fill_n(gradients_, plan_.elements(), 0.0F);
  for (const auto& frames : frames_) decoder_->add_all(step, frames.data(), bytes, gradients_);
  return sum;
}

GroupSum WorkerGroup::sum() {
  if (codec_) return sum_encoded();
  GroupSum sum{plan_.elements() * sizeof(float), now_us(), 0};
  for (std::size_t piece = 0; piece < plan_.pieces.size(); ++piece) ring_->all_reduce(piece);
  sum.end_us = now_us();
  return sum;
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
