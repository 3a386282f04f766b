#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "db/reader.hpp"
#include "reports/model/synchronisation_modes.hpp"

namespace dynamiccl {

// What the two queries of published synchronisation have in common.

/// One row of query time_to_target with what it is held against.
struct SynchronisedCell {
  std::string environment;
  std::string backend;
  std::string architecture;
  std::string model;
  std::int64_t batch = 0;
  std::int64_t workers = 0;
  std::string task;
  std::string method;
  std::string synchronisation;
  std::string compression;
  std::string settings;
  std::string carried_by;  ///< the library that moved the gradients; "" unknown
  std::int64_t launches = 0;
  std::optional<double> reached;  ///< launches; nullopt without a target
  double samples = 0;             ///< of all workers until the target, or until the epochs ended
  double trained_us = 0;
  std::optional<double> rounds_per_step;  ///< meetings in a step of a worker
  std::optional<double> over_plain;       ///< time
  std::optional<double> samples_over_plain;
  std::optional<double> sample_time_over_plain;
  std::optional<double> beyond_plain;  ///< accuracy at the end, less plain SGD's
  std::optional<double> beyond_plain_low;
  std::optional<double> beyond_plain_high;
  std::optional<double> beyond_samples_off;  ///< samples of the two, apart from equal at most
  std::optional<std::int64_t> most_stale;
  std::optional<double> consensus_distance;
  std::optional<double> unsent;
  std::optional<double> busiest_over_mean;  ///< bytes sent by the busiest rank over a rank's mean
  std::optional<double> sent_bytes;         ///< by the busiest rank until then
  bool plain = false;                       ///< plain SGD
  SynchronisationMode mode;
};

/// @param run row key
std::vector<SynchronisedCell> synchronised_cells(const Reader& reader, std::int64_t run);

}  // namespace dynamiccl
