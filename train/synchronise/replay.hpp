#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace dynamiccl {

/// What workers decided in each round: with AdaComm how many steps it has, with LAG whether (1) or
/// not (0) a gradient was sent.
using RoundLog = std::vector<int>;

/// What a worker has between two rounds, in the order of gradients.
struct WorkerState {
  std::vector<float> weights;
  std::vector<float> velocity;  ///< empty where servers keep it
};

/// What every worker really had after a round: the replay goes on from there, so that a last bit
/// that summing in another order makes is not carried over a kink of the model (ReLU, the maximum
/// of a pool) into another gradient. Ranks: all call it for the same rounds.
using StatesAfter = std::function<std::vector<WorkerState>(std::size_t round)>;

/// What one process gets that does every worker's rounds in turn, each from what workers had
/// before.
struct ReplayedRounds {
  std::vector<float> own;     ///< weights of the worker that replays, after each round
  std::vector<float> centre;  ///< EASGD
  std::vector<RoundLog> log;  ///< of each worker, where rounds decide anything
};

}  // namespace dynamiccl
