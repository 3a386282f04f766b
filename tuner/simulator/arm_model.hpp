#pragma once

#include <array>
#include <memory>
#include <vector>

#include "tuner/action/spaces.hpp"
#include "tuner/simulator/collective_cost.hpp"
#include "tuner/simulator/transport_model.hpp"

namespace dynamiccl {

class MachineCost;

/// Constants of a task's path: what the analytic models need besides the arm.
struct PathModel {
  LinkParameters link;     ///< MPI, Gloo and our own collectives; start-up for NCCL
  TransportModel peer;     ///< NCCL through peer access
  TransportModel shared;   ///< NCCL through shared memory
  TransportModel network;  ///< NCCL through sockets or InfiniBand
  double helper_gain = 4;  ///< bandwidth over sockets with 16 helper threads against none
  /// Where it is set, rounds and bytes take what they take on its links, between ranks that are
  /// `stride` apart; `link` and the transports then say how far a setting falls short of them.
  MachineCost* machine = nullptr;
  int stride = 1;
};

/// What an arm takes.
struct ArmCost {
  double us = 0;
  /// Of what the rank computes with, while the call runs: channels of NCCL's, sums of others'.
  double busy = 0;
};

/// Constants from what is known of a path before anything is measured.
/// @param tier 0 to 4
/// @param place 0 to 1 between the tier's bandwidths
PathModel nominal_path(int tier, double place = 0.5);

/// How NCCL's protocols differ from Simple: start-up and bandwidth factors.
struct ProtocolFactor {
  double alpha;
  double bandwidth;
};

/// The arms of a space with everything resolved that the cost models need: names are looked up
/// once, so that a cost is a few multiplications.
class ArmModel {
 public:
  /// The space must outlive the model.
  ArmModel(const ActionSpace& space, const SpaceContext& context);

  /// Analytic time of every arm, microseconds. The default is as fast as the fastest modelled
  /// choice of implementation: a library chooses sensibly.
  [[nodiscard]] std::vector<double> times_us(double bytes, const PathModel& path) const;
  /// The same where the library has chosen this algorithm, whatever is fastest on the path.
  [[nodiscard]] std::vector<ArmCost> costs(double bytes, const PathModel& path,
                                           std::string_view library) const;
  /// The algorithm of the fastest arm that sets nothing else.
  [[nodiscard]] std::string_view library_choice(double bytes, const PathModel& path) const;
  /// Natural logarithms of times_us(): the agents' prior.
  [[nodiscard]] std::vector<double> log_times(double bytes, const PathModel& path) const;

  [[nodiscard]] std::size_t arms() const { return arms_.size(); }
  /// Number of the arm's implementation choice, from 0 (the default's).
  [[nodiscard]] int implementation(std::size_t arm) const { return arms_[arm].implementation; }
  [[nodiscard]] int implementations() const { return implementations_; }
  [[nodiscard]] std::string_view algorithm(std::size_t arm) const { return arms_[arm].algorithm; }

 private:
  struct Arm {
    std::string_view algorithm;
    bool library_choice = false;  ///< algorithm left to the library
    double segment = 0;
    double fanout = 0;
    double depth = 0;  ///< of our own server, as below
    double shards = 0;
    int protocol = -1;  ///< 0 LL, 1 LL128, 2 Simple; -1 the library's choice
    int transport = 2;
    double channels = 0;  ///< 0 = default, as below
    double threads = 0;
    double chunk = 0;
    double socket_threads = 0;
    int allocator_settings = 0;  ///< in force of malloc.keep and malloc.huge_pages
    int implementation = 0;
  };
  [[nodiscard]] ArmCost cpu_cost(const Arm& arm, double bytes, const PathModel& path) const;
  [[nodiscard]] ArmCost nccl_cost(const Arm& arm, double bytes, const PathModel& path) const;
  [[nodiscard]] ArmCost cost(const Arm& arm, double bytes, const PathModel& path) const {
    return nccl_ ? nccl_cost(arm, bytes, path) : cpu_cost(arm, bytes, path);
  }

  Collective collective_;
  int ranks_;
  bool nccl_;
  bool peers_;  ///< GPUs map each other's memory
  std::vector<Arm> arms_;
  int implementations_ = 0;
};

}  // namespace dynamiccl
