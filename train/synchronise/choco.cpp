#include "train/synchronise/choco.hpp"

#include <algorithm>

#include "train/step/worker_step.hpp"
#include "train/synchronise/averaging.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {

void choco_take(ChocoState& state, const std::vector<float>& sent, float share, bool own) {
  for (std::size_t i = 0; i < sent.size(); ++i) state.mixed[i] += share * sent[i];
  if (!own) return;
  for (std::size_t i = 0; i < sent.size(); ++i) state.replica[i] += sent[i];
}

void choco_go(const ChocoState& state, float* weights) {
  constexpr float kPart = 0.5F;
  for (std::size_t i = 0; i < state.replica.size(); ++i)
    weights[i] += kPart * (state.mixed[i] - state.replica[i]);
}

ChocoAverage::ChocoAverage(Communicator& comm, const ExchangePlan& plan, const TrainingSpec& spec,
                           Micros silence)
    : comm_(comm),
      silence_(silence),
      mixing_(mixing_of(spec.topology, comm.size(), comm.rank(), 0, 0)),
      messages_(plan, comm.rank(), comm.size()),
      decoder_(plan),
      values_(plan.elements()),
      frames_(mixing_.from.size()) {}

void ChocoAverage::begin(const std::vector<float>& weights) { state_.begin(weights); }

void ChocoAverage::restart() {
  state_ = {};
  messages_.restart();
  round_ = 0;
}

std::size_t ChocoAverage::held_bytes() const {
  std::size_t bytes =
      own_.size() + messages_.state_bytes() +
      (values_.size() + state_.replica.size() + state_.mixed.size()) * sizeof(float);
  for (const auto& frames : frames_) bytes += frames.size();
  return bytes;
}

std::size_t ChocoAverage::encode(const float* weights) {
  std::copy_n(weights, values_.size(), values_.begin());
  take_way(state_.replica.data(), values_.data(), values_.size());
  messages_.begin_step();
  return messages_.encode_all(values_.data(), own_);
}

void ChocoAverage::swap(std::size_t bytes) {
  std::vector<std::pair<Request, int>> requests;  ///< with whom
  for (std::size_t n = 0; n < mixing_.from.size(); ++n) {
    frames_[n].resize(bytes);
    const int from = mixing_.from[n].worker;
    requests.emplace_back(comm_.irecv(frames_[n].data(), bytes, from, kGossipTag), from);
  }
  for (const int to : mixing_.to)
    requests.emplace_back(comm_.isend(own_.data(), bytes, to, kGossipTag), to);
  for (const auto& [request, peer] : requests) comm_.wait_within(request, peer, silence_);
  sent_bytes_ += mixing_.to.size() * bytes;
}

void ChocoAverage::average(float* weights) {
  const std::size_t bytes = encode(weights);
  swap(bytes);
  const int worker = comm_.rank();
  const bool forgets = planted_fault("drop-neighbour") && worker == comm_.size() - 1;
  const auto take = [&](const std::vector<std::uint8_t>& frames, double share, bool own) {
    std::fill(values_.begin(), values_.end(), 0.0F);
    messages_.timed(&CodingFigures::decode_us, [&] {
      decoder_.add_all(round_, frames.data(), frames.size(), values_.data());
    });
    choco_take(state_, values_, static_cast<float>(share), own);
  };
  bool added = false;
  for (std::size_t n = 0; n < mixing_.from.size(); ++n) {
    if (!added && mixing_.from[n].worker > worker) {
      take(own_, mixing_.self, true);
      added = true;
    }
    if (!(forgets && n == 0)) take(frames_[n], mixing_.from[n].weight, false);
  }
  if (!added) take(own_, mixing_.self, true);
  choco_go(state_, weights);
  ++round_;
}

}  // namespace dynamiccl
