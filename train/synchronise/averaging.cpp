#include "train/synchronise/averaging.hpp"

#include <algorithm>
#include <cmath>

#include "train/step/worker_step.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {

namespace {

/// Calls `add` with the worker's own weights and those of its neighbours, in the order of workers.
template <class Add>
void in_worker_order(const Mixing& mixing, int worker, const float* own,
                     const std::vector<const float*>& of, Add&& add) {
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

}  // namespace

void mix(const Mixing& mixing, int worker, const float* own, const std::vector<const float*>& of,
         float* out, std::size_t count) {
  std::fill_n(out, count, 0.0F);
  in_worker_order(mixing, worker, own, of, [&](const float* from, double weight) {
    const auto share = static_cast<float>(weight);
    for (std::size_t i = 0; i < count; ++i) out[i] += share * from[i];
  });
}

void mix_in(TensorMemory& memory, const Mixing& mixing, int worker, const float* own,
            const std::vector<const float*>& of, float* out, std::size_t count) {
  if (!memory.on_gpu()) return mix(mixing, worker, own, of, out, count);
  float keep = 0;
  in_worker_order(mixing, worker, own, of, [&](const float* from, double weight) {
    memory.blend(out, keep, from, static_cast<float>(weight), count);
    keep = 1;
  });
}

NeighbourAverage::NeighbourAverage(Communicator& comm, TensorMemory& memory, PeerGraph topology,
                                   std::size_t count, std::uint64_t seed, Micros silence,
                                   std::size_t most_at_once)
    : comm_(comm),
      memory_(memory),
      topology_(topology),
      count_(count),
      seed_(seed),
      silence_(silence),
      part_(count) {
  // The same on every worker, however many neighbours it has; there are fewer than workers.
  if (on_queue())
    part_ = std::clamp<std::size_t>(most_at_once / static_cast<std::size_t>(comm.size()), 1,
                                    std::max<std::size_t>(1, count));
  out_.resize(memory_, count_);
}

bool NeighbourAverage::on_queue() const { return memory_.on_gpu() && comm_.queue() != nullptr; }

const float* NeighbourAverage::average(std::uint64_t round, const float* own) {
  const int worker = comm_.rank();
  const Mixing mixing = mixing_of(topology_, comm_.size(), worker, round, seed_);
  const std::size_t wanted = mixing.from.size() * part_;
  if (in_.size() < wanted) in_.resize(memory_, wanted);
  Mixing counted = mixing;
  if (planted_fault("drop-neighbour") && worker == comm_.size() - 1 && !mixing.from.empty()) {
    counted.self += mixing.from.front().weight;
    counted.from.erase(counted.from.begin());
  }
  const std::size_t left_out = mixing.from.size() - counted.from.size();
  for (std::size_t at = 0; at < count_; at += part_) {
    const std::size_t part = std::min(part_, count_ - at);
    if (on_queue()) {
      swap_on_queue(mixing, own + at, part);
    } else {
      swap(mixing, own + at, part);
    }
    std::vector<const float*> of;
    for (std::size_t n = left_out; n < mixing.from.size(); ++n) of.push_back(in_.at(n * part));
    mix_in(memory_, counted, worker, own + at, of, out_.at(at), part);
  }
  sent_bytes_ += mixing.to.size() * count_ * sizeof(float);
  return out_.data();
}

void NeighbourAverage::swap(const Mixing& mixing, const float* own, std::size_t part) {
  const std::size_t bytes = part * sizeof(float);
  memory_.complete();                             // the library takes a GPU's memory as it is
  std::vector<std::pair<Request, int>> requests;  ///< with whom
  for (std::size_t n = 0; n < mixing.from.size(); ++n) {
    const int from = mixing.from[n].worker;
    requests.emplace_back(comm_.irecv(in_.at(n * part), bytes, from, kGossipTag), from);
  }
  for (const int to : mixing.to) requests.emplace_back(comm_.isend(own, bytes, to, kGossipTag), to);
  for (const auto& [request, peer] : requests) comm_.wait_within(request, peer, silence_);
}

/// In one group: neighbours that each waited for the first of theirs could wait around a ring.
void NeighbourAverage::swap_on_queue(const Mixing& mixing, const float* own, std::size_t part) {
  const auto ranks = static_cast<std::size_t>(comm_.size());
  const std::vector<int> none(ranks, 0);
  PairCounts counts{none, none, none, none};
  const auto count = static_cast<int>(part);
  for (const int to : mixing.to) counts.send[static_cast<std::size_t>(to)] = count;
  for (std::size_t n = 0; n < mixing.from.size(); ++n) {
    const auto from = static_cast<std::size_t>(mixing.from[n].worker);
    counts.receive[from] = count;
    counts.receive_at[from] = static_cast<int>(n * part);
  }
  GpuOrder& queue = *comm_.queue();
  queue.follow(memory_.stream());
  comm_.alltoallv(own, in_.data(), counts, DataType::float32);
  queue.note(0);
  queue.hold_back(memory_.stream(), 0);
  memory_.complete_or_fail([&] { comm_.check_queued(); });
}

void take_way(const float* common, float* weights, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) weights[i] -= common[i];
}

void take_way_in(TensorMemory& memory, const float* common, float* weights, std::size_t count) {
  if (!memory.on_gpu()) return take_way(common, weights, count);
  memory.blend(weights, 1, common, -1, count);
}

void go_way(const float* sum, float scale, float* common, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) common[i] += sum[i] * scale;
}

void go_way_in(TensorMemory& memory, const float* sum, float scale, float* common,
               std::size_t count) {
  if (!memory.on_gpu()) return go_way(sum, scale, common, count);
  memory.blend(common, 1, sum, scale, count);
}

void slow_step(float momentum, const float* mean, float scale, float* moved, float* weights,
               std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    moved[i] = momentum * moved[i] + (weights[i] - mean[i] * scale);
    weights[i] -= moved[i];
  }
}

void slow_step_in(TensorMemory& memory, float momentum, float* mean, float scale, float* moved,
                  float* weights, std::size_t count) {
  if (!memory.on_gpu()) return slow_step(momentum, mean, scale, moved, weights, count);
  memory.blend(mean, -scale, weights, 1, count);
  memory.blend(moved, momentum, mean, 1, count);
  memory.blend(weights, 1, moved, -1, count);
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

namespace {

/// Of the way that the centre goes to the workers' mean in a round of EASGD.
constexpr double kElastic = 0.9;

}  // namespace

float pull_of(int workers) { return static_cast<float>(kElastic / workers); }

void move_centre(const float* sum, float scale, float* centre, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    centre[i] += static_cast<float>(kElastic) * (sum[i] * scale - centre[i]);
}

void move_centre_in(TensorMemory& memory, float* sum, float scale, float* centre,
                    std::size_t count) {
  if (!memory.on_gpu()) return move_centre(sum, scale, centre, count);
  memory.blend(sum, scale, centre, -1, count);
  memory.blend(centre, 1, sum, static_cast<float>(kElastic), count);
}

std::vector<float> mean_weights(Messages& comm, const std::vector<float>& own) {
  const auto sums = sum_over_ranks(comm, std::vector<double>(own.begin(), own.end()));
  std::vector<float> mean;
  mean.reserve(sums.size());
  for (const double sum : sums) mean.push_back(static_cast<float>(sum / comm.size()));
  return mean;
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
