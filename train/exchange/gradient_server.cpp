#include "train/exchange/gradient_server.hpp"

#include <algorithm>

#include "workers/clock.hpp"
#include "workers/collectives/sum.hpp"
#include "workers/standing.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {

struct GradientServer::Shard {
  std::size_t piece = 0;
  std::size_t count = 0;
  std::size_t offset = 0;  ///< in this server's shard
  std::size_t pushed = 0;  ///< workers whose piece of this step has come
  std::vector<Request> receiving;
  std::vector<Request> sending;
  std::vector<std::vector<std::uint8_t>> frames;  ///< of each worker, where they are encoded
};

GradientServer::GradientServer(Messages& comm, const ExchangePlan& plan)
    : comm_(comm),
      plan_(plan),
      workers_(comm.size() - plan.servers),
      shard_of_piece_(plan.pieces.size(), 0) {
  for (std::size_t i = 0; i < plan_.pieces.size(); ++i) {
    if (plan_.pieces[i].server != comm.rank()) continue;
    shard_of_piece_[i] = shards_.size();
    Shard shard;
    shard.piece = i;
    shard.count = plan_.pieces[i].count;
    shard.offset = shard_elements_;
    shard.receiving.resize(static_cast<std::size_t>(workers_));
    shard_elements_ += shard.count;
    shards_.push_back(std::move(shard));
  }
  if (plan_.codec.codec != Codec::none) {
    decoder_.emplace(plan_);
    for (auto& shard : shards_) shard.frames.resize(static_cast<std::size_t>(workers_));
  }
  // Of encoded gradients the sum alone.
  const int slots = decoder_ ? 1 : workers_;
  buffer_.resize(shard_elements_ * static_cast<std::size_t>(slots + 1));
  if (plan_.server_sgd) velocity_.resize(shard_elements_);
  headers_.resize(shards_.size() * static_cast<std::size_t>(workers_));
  header_requests_.resize(headers_.size());
}

GradientServer::~GradientServer() = default;

float* GradientServer::slot(std::size_t shard, int worker) {
  // The last slot, which `workers_` stands for, holds the answer.
  const int row = decoder_ && worker == workers_ ? 1 : worker;
  return buffer_.data() + static_cast<std::size_t>(row) * shard_elements_ + shards_[shard].offset;
}

std::pair<void*, std::size_t> GradientServer::place(std::size_t shard, int worker) {
  Shard& s = shards_[shard];
  if (!decoder_) return {slot(shard, worker), s.count * sizeof(float)};
  auto& frames = s.frames[static_cast<std::size_t>(worker)];
  frames.resize(decoder_->frame_limit(s.piece, step_));
  return {frames.data(), frames.size()};
}

std::size_t GradientServer::held_bytes() const {
  std::size_t bytes = buffer_.size() * sizeof(float);
  for (const auto& shard : shards_)
    for (const auto& frames : shard.frames) bytes += frames.size();
  return bytes;
}

void GradientServer::post(std::size_t shard, int worker) {
  const auto [data, bytes] = place(shard, worker);
  shards_[shard].receiving[static_cast<std::size_t>(worker)] = comm_.irecv(
      data, bytes, plan_.servers + worker, kPieceTag + static_cast<int>(shards_[shard].piece));
}

void send_weights(Messages& comm, const ExchangePlan& plan, const float* weights) {
  if (!plan.server_sgd) return;
  for (std::size_t i = 0; i < plan.pieces.size(); ++i) {
    const Piece& piece = plan.pieces[i];
    comm.wait(comm.isend(weights + piece.offset, piece.count * sizeof(float), piece.server,
                         kPieceTag + static_cast<int>(i)));
  }
}

void GradientServer::take_weights() {
  step_ = 0;
  if (!plan_.server_sgd) return;
  std::fill(velocity_.begin(), velocity_.end(), 0.0F);
  for (std::size_t s = 0; s < shards_.size(); ++s)
    comm_.wait(comm_.irecv(slot(s, workers_), shards_[s].count * sizeof(float), plan_.servers,
                           kPieceTag + static_cast<int>(shards_[s].piece)));
}

double GradientServer::serve_step() {
  stand_at_next(Standpoint::gradients);
  // All of a step's pieces have a place before the first comes: no worker waits for another's.
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    for (int worker = 0; worker < workers_; ++worker) post(s, worker);
  }
  const auto workers = static_cast<std::size_t>(workers_);
  for (std::size_t i = 0; i < headers_.size(); ++i) {
    // In the order in which they are looked at: messages of one worker keep theirs.
    header_requests_[i] = comm_.irecv(&headers_[i], sizeof headers_[i],
                                      plan_.servers + static_cast<int>(i % workers), kPushTag);
  }
  double sum_us = 0;
  for (std::size_t i = 0; i < headers_.size(); ++i) {
    comm_.wait(header_requests_[i]);
    const std::size_t shard = shard_of_piece_[headers_[i]];
    comm_.wait(shards_[shard].receiving[i % workers]);
    if (++shards_[shard].pushed == workers) sum_us += complete(shard);
  }
  ++step_;
  return sum_us;
}

void GradientServer::complete_sends() {
  for (auto& shard : shards_)
    for (const Request request : std::exchange(shard.sending, {})) comm_.wait(request);
}

/// Every worker's message, in rank order.
void GradientServer::add_up(std::size_t shard, float* sum) {
  const Shard& s = shards_[shard];
  if (!decoder_) {
    if (sum != slot(shard, 0)) std::copy_n(slot(shard, 0), s.count, sum);
    for (int worker = 1; worker < workers_; ++worker)
      sum_elements(sum, sum, slot(shard, worker), s.count, DataType::float32);
    return;
  }
  std::fill_n(sum, s.count, 0.0F);
  for (const auto& frames : s.frames)
    decoder_->add(s.piece, step_, frames.data(), frames.size(), sum);
  decoder_->conclude(s.piece, workers_, sum);
}

double GradientServer::complete(std::size_t shard) {
  Shard& s = shards_[shard];
  for (const Request request : std::exchange(s.sending, {})) comm_.wait(request);
  s.pushed = 0;
  const double start_us = now_us();
  float* answer = slot(shard, workers_);
  // An optimizer's answer is its weights: it adds up in the first worker's slot.
  float* sum = plan_.server_sgd ? slot(shard, 0) : answer;
  add_up(shard, sum);
  if (plan_.server_sgd)
    sgd_update(*plan_.server_sgd, answer, &velocity_[s.offset], sum,
               static_cast<float>(1.0 / workers_), s.count);
  const double sum_us = now_us() - start_us;
  for (int worker = 0; worker < workers_; ++worker) {
    s.sending.push_back(comm_.isend(answer, s.count * sizeof(float), plan_.servers + worker,
                                    kPieceTag + static_cast<int>(s.piece)));
    sent_bytes_ += s.count * sizeof(float);
  }
  return sum_us;
}

}  // namespace dynamiccl
