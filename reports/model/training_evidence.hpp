#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "db/reader.hpp"
#include "reports/model/c2c.hpp"

namespace dynamiccl {

struct SentMessage {
  std::uint64_t offset = 0;  ///< elements from the gradient that is ready first
  std::uint64_t bytes = 0;
  double start_us = 0;
  double duration_us = 0;
  bool answer = false;  ///< its second half: gathered or pulled, when the next forward needs it
};

/// What one launch of a training cell left of its messages and of its servers.
struct TrainingEvidence {
  const C2cCell* cell = nullptr;
  std::vector<std::uint64_t> tensors;   ///< bytes
  std::vector<std::uint64_t> messages;  ///< bytes, as planned
  std::vector<SentMessage> sent;        ///< of one step, in the order of their starts
  double worker_bytes = 0;              ///< sent by the busiest worker in a step
  double mean_bytes = 0;                ///< sent by a rank, mean over all
  double server_bytes = 0;              ///< sent by the busiest server in a step
  std::optional<double> server_busy;    ///< share of a server's step in which it sums
  std::string carried_by;               ///< the library that moved the gradients; "" unknown
};

/// The training cells of a run with their evidence, by environment, backend, model, batch and
/// ranks; of each the fastest first.
class TrainingWorkloads {
 public:
  TrainingWorkloads(const Reader& reader, std::int64_t run);
  TrainingWorkloads(const TrainingWorkloads&) = delete;
  TrainingWorkloads& operator=(const TrainingWorkloads&) = delete;
  [[nodiscard]] const std::map<std::string, std::vector<const TrainingEvidence*>>& all() const {
    return by_workload_;
  }

 private:
  std::vector<C2cCell> cells_;
  std::map<std::string, TrainingEvidence> evidence_;
  std::map<std::string, std::vector<const TrainingEvidence*>> by_workload_;
};

}  // namespace dynamiccl
