#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "train/spec/training.hpp"
#include "train/step/tensor_memory.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// One worker's average with its neighbours: the same bits for the same weights, whoever adds.
/// @param own this worker's weights
/// @param of the weights of `mixing.from`, in that order
/// @param out not one of the others
void mix(const Mixing& mixing, int worker, const float* own, const std::vector<const float*>& of,
         float* out, std::size_t count);

/// The same in any memory, which a GPU's sums round in places of their own.
void mix_in(TensorMemory& memory, const Mixing& mixing, int worker, const float* own,
            const std::vector<const float*>& of, float* out, std::size_t count);

/// Swaps weights with the neighbours of a round and averages, in the memory where they lie: a
/// library with a queue of its own on the GPU (NCCL) swaps them there, in one group of sends and
/// receives. One thread.
class NeighbourAverage {
 public:
  /// @param silence after which a neighbour is taken for lost, where the library can tell
  /// @param most_at_once elements of all neighbours in one group, which counts them with an int;
  /// more go one part after the other
  NeighbourAverage(Communicator& comm, TensorMemory& memory, PeerGraph topology, std::size_t count,
                   std::uint64_t seed, Micros silence,
                   std::size_t most_at_once = std::numeric_limits<int>::max());
  /// Ranks: all, each is the worker of its number.
  /// @returns the new weights, until the next call
  const float* average(std::uint64_t round, const float* own);
  [[nodiscard]] std::uint64_t sent_bytes() const { return sent_bytes_; }
  [[nodiscard]] std::size_t held_bytes() const {
    return (in_.size() + out_.size()) * sizeof(float);
  }

 private:
  [[nodiscard]] bool on_queue() const;
  void swap(const Mixing& mixing, const float* own, std::size_t part);
  void swap_on_queue(const Mixing& mixing, const float* own, std::size_t part);

  Communicator& comm_;
  TensorMemory& memory_;
  PeerGraph topology_;
  std::size_t count_;
  std::uint64_t seed_;
  Micros silence_;
  std::size_t part_;  ///< elements that are swapped at once
  FlatBuffer out_;
  FlatBuffer in_;  ///< of one neighbour after the other
  std::uint64_t sent_bytes_ = 0;
};

/// `weights` become how far they are from `common`, which all workers have.
void take_way(const float* common, float* weights, std::size_t count);
/// The same in any memory.
void take_way_in(TensorMemory& memory, const float* common, float* weights, std::size_t count);
/// `common` goes `scale` times the sum of all workers' ways.
void go_way(const float* sum, float scale, float* common, std::size_t count);
void go_way_in(TensorMemory& memory, const float* sum, float scale, float* common,
               std::size_t count);

/// What workers that have met keep of how far they came in the rounds before (SlowMo): `moved` is
/// momentum times itself and the way from `weights` to `mean`, and `weights` go that way.
void slow_step(float momentum, const float* mean, float scale, float* moved, float* weights,
               std::size_t count);
/// The same in any memory. @param mean is used up
void slow_step_in(TensorMemory& memory, float momentum, float* mean, float scale, float* moved,
                  float* weights, std::size_t count);

/// The worker's part of a round's average: 0 for who does not take part, all of them together 1.
double part_of(const TrainingSpec& spec, int workers, int worker, std::uint64_t round,
               std::uint64_t seed);

/// EASGD's part of the way that a worker goes to the centre.
float pull_of(int workers);
/// The centre goes its part of the way to the workers' mean (`scale` times their sum).
void move_centre(const float* sum, float scale, float* centre, std::size_t count);
/// The same in any memory. @param sum is used up
void move_centre_in(TensorMemory& memory, float* sum, float scale, float* centre,
                    std::size_t count);

/// The mean of all workers' weights. Ranks: all, each with its own.
std::vector<float> mean_weights(Messages& comm, const std::vector<float>& own);

/// Root of the mean squared distance of the workers' weights from their mean. Ranks: all, each with
/// its own weights.
double consensus_distance(Messages& comm, const std::vector<float>& own);

}  // namespace dynamiccl
