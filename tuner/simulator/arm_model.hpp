#pragma once

#include <array>
#include <memory>
#include <vector>

#include "tuner/action/spaces.hpp"
#include "tuner/simulator/collective_cost.hpp"
#include "tuner/simulator/transport_model.hpp"

namespace dynamiccl {

/// Constants of a task's path: what the analytic models need besides the arm.
struct PathModel {
  LinkParameters link;     ///< MPI, Gloo and our own collectives; start-up for NCCL
  TransportModel peer;     ///< NCCL through peer access
  TransportModel shared;   ///< NCCL through shared memory
  TransportModel network;  ///< NCCL through sockets or InfiniBand
  double helper_gain = 4;  ///< bandwidth over sockets with 16 helper threads against none
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
  /// Natural logarithms of times_us(): the agents' prior.
  [[nodiscard]] std::vector<double> log_times(double bytes, const PathModel& path) const;

  [[nodiscard]] std::size_t arms() const { return arms_.size(); }
  /// Number of the arm's implementation choice, from 0 (the default's).
  [[nodiscard]] int implementation(std::size_t arm) const { return arms_[arm].implementation; }
  [[nodiscard]] int implementations() const { return implementations_; }
  /// 0 for peer access, 1 shared memory, 2 network; CPU libraries: 2.
  [[nodiscard]] int transport(std::size_t arm) const { return arms_[arm].transport; }

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
  [[nodiscard]] double cpu_us(const Arm& arm, double bytes, const PathModel& path) const;
  [[nodiscard]] double nccl_us(const Arm& arm, double bytes, const PathModel& path) const;

  Collective collective_;
  int ranks_;
  bool nccl_;
  std::vector<Arm> arms_;
  int implementations_ = 0;
};

}  // namespace dynamiccl
