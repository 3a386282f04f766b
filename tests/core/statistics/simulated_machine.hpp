#pragma once

#include <cmath>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "core/statistics/statistics.hpp"

namespace dynamiccl::testing {

constexpr double kTrueTime = 100;
constexpr double kBetweenLaunches = 0.02;

/// Times as machines give them: log-normal, neighbouring iterations of a launch alike (an
/// autoregressive process), launches independent of each other. The median of the distribution of
/// launch medians is the centre asked for.
class SimulatedMachine {
 public:
  explicit SimulatedMachine(unsigned seed) : random_(seed) {}

  std::vector<double> launch_medians(int launches, double centre = kTrueTime,
                                     const std::vector<double>& shared = {}) {
    std::vector<double> medians;
    for (int i = 0; i < launches; ++i) {
      const double block = shared.empty() ? 0 : shared[static_cast<std::size_t>(i)];
      medians.push_back(launch(std::log(centre) + block + kBetweenLaunches * normal_(random_)));
    }
    return medians;
  }
  /// What all launches of a block have in common: the hour of the day.
  std::vector<double> blocks(int count, double spread) {
    std::vector<double> logs;
    for (int i = 0; i < count; ++i) logs.push_back(spread * normal_(random_));
    return logs;
  }

 private:
  double launch(double log_centre) {
    constexpr double alike = 0.6;
    constexpr double within = 0.02;
    std::vector<double> logs(60);
    double noise = normal_(random_);
    for (auto& log_time : logs) {
      log_time = log_centre + within * noise;
      noise = alike * noise + std::sqrt(1 - alike * alike) * normal_(random_);
    }
    // An odd count of them would commute with the logarithm exactly; here the difference is 1e-6.
    return std::exp(median(std::move(logs)));
  }

  std::mt19937_64 random_;
  std::normal_distribution<double> normal_{0, 1};
};

}  // namespace dynamiccl::testing
