#pragma once

#include <optional>

namespace dynamiccl {

/// The loss of a round in which a worker has no part, before it ever had one: no loss is below 0.
inline constexpr double kNoLoss = -1;

/// Host memory's parts by the host's clock, a GPU's by its own: see PartClock.
struct StepTimes {
  double start_us = 0;
  double data_us = 0;  ///< the computing thread waited for its batch
  double forward_us = 0;
  double backward_us = 0;
  double update_us = 0;
  double exposed_us = 0;  ///< the computing thread waited for sums
  double total_us = 0;    ///< of a step that ends in a call of its own; 0 where its caller knows
  double loss = 0;
  std::optional<double> waited_us = std::nullopt;  ///< its threads for cores; nullopt: not known
  /// What the parts above say of a step's time.
  [[nodiscard]] double parts_us() const {
    return data_us + forward_us + backward_us + update_us + exposed_us;
  }
};

}  // namespace dynamiccl
