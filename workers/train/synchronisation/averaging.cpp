#include "workers/train/synchronisation/averaging.hpp"

#include <algorithm>
#include <cmath>

#include "workers/tags.hpp"
#include "workers/train/worker_step.hpp"

namespace dynamiccl {

void mix(const Mixing& mixing, int worker, const float* own, const std::vector<const float*>& of,
         float* out, std::size_t count) {
  std::fill_n(out, count, 0.0F);
  const auto add = [&](const float* from, double weight) {
    const auto share = static_cast<float>(weight);
    for (std::size_t i = 0; i < count; ++i) out[i] += share * from[i];
  };
  bool added = false;
  for (std::size_t n = 0; n < mixing.from.size(); ++n) {
    if (!added && mixing.from[n].worker > worker) {
      add(own, mixing.self);
      added = true;
    }
    add(of[n], mixing.from[n].weight);
  }
  if (!added) add(own, mixing.self);
}

const float* NeighbourAverage::average(std::uint64_t round, const float* own) {
  const int worker = comm_.rank();
  const std::size_t bytes = count_ * sizeof(float);
  Mixing mixing = mixing_of(topology_, comm_.size(), worker, round, seed_);
  if (in_.size() < mixing.from.size()) in_.resize(mixing.from.size(), std::vector<float>(count_));
  std::vector<std::pair<Request, int>> requests;  ///< with whom
  std::vector<const float*> of;
  for (std::size_t n = 0; n < mixing.from.size(); ++n) {
    const int from = mixing.from[n].worker;
    requests.emplace_back(comm_.irecv(in_[n].data(), bytes, from, kGossipTag), from);
    of.push_back(in_[n].data());
  }
  for (const int to : mixing.to) {
    requests.emplace_back(comm_.isend(own, bytes, to, kGossipTag), to);
    sent_bytes_ += bytes;
  }
  for (const auto& [request, peer] : requests) comm_.wait_within(request, peer, silence_);
  if (planted_fault().drop_neighbour && worker == comm_.size() - 1 && !mixing.from.empty()) {
    mixing.self += mixing.from.front().weight;
    mixing.from.erase(mixing.from.begin());
    of.erase(of.begin());
  }
  mix(mixing, worker, own, of, out_.data(), count_);
  return out_.data();
}

void slow_step(float momentum, const float* mean, float scale, std::vector<float>& moved,
               std::vector<float>& weights) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    moved[i] = momentum * moved[i] + (weights[i] - mean[i] * scale);
    weights[i] -= moved[i];
  }
}

double part_of(const TrainingSpec& spec, int workers, int worker, std::uint64_t round,
               std::uint64_t seed) {
  double all = 0;
  double own = 0;
  for (const int each : participants_of(spec, workers, round, seed)) {
    const double share = share_of(spec, workers, each);
    all += share;
    if (each == worker) own = share;
  }
  return own / all;
}

float pull_of(const TrainingSpec& spec, int workers) {
  return static_cast<float>(spec.elastic / workers);
}

void move_centre(const TrainingSpec& spec, const float* sum, float scale,
                 std::vector<float>& centre) {
  const auto part = static_cast<float>(spec.elastic);
  for (std::size_t i = 0; i < centre.size(); ++i) centre[i] += part * (sum[i] * scale - centre[i]);
}

double consensus_distance(Messages& comm, const std::vector<float>& own) {
  std::vector<double> mean = sum_over_ranks(comm, std::vector<double>(own.begin(), own.end()));
  const auto ranks = static_cast<double>(comm.size());
  double squares = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double apart = own[i] - mean[i] / ranks;
    squares += apart * apart;
  }
  return std::sqrt(sum_over_ranks(comm, {squares})[0] / ranks);
}

}  // namespace dynamiccl
