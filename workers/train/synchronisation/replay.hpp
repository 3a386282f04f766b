#pragma once

#include <vector>

namespace dynamiccl {

/// What workers decided in each round: with AdaComm how many steps it has, with LAG whether (1) or
/// not (0) a gradient was sent.
using RoundLog = std::vector<int>;

/// What one process gets that does every worker's rounds in turn.
struct ReplayedRounds {
  std::vector<std::vector<float>> weights;  ///< of each worker, in the order of gradients
  std::vector<float> centre;                ///< EASGD
  std::vector<RoundLog> log;                ///< of each worker, where rounds decide anything
};

}  // namespace dynamiccl
