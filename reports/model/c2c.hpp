#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "db/reader.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/target_times.hpp"

namespace dynamiccl {

/// What the ratio of communication to computation says of one training cell, medians over launches.
/// D parameters, C FLOP per sample, M samples per worker and step, I = C / D, N workers, b = 4
/// bytes per parameter, F FLOP/s of a worker, B bytes/s of the busiest link.
struct C2cCell {
  CellFigure figure;
  TrainedCell cell;
  double intensity = 0;  ///< I
  /// f(N), volumes of all parameters over the busiest link in a step of a worker, of rounds the
  /// mean of their steps: by formula, and by the bytes that were counted.
  double f_formula = 0;
  std::optional<double> f_counted;  ///< nullopt: bytes went another way
  /// f(N) that the measured cost per byte tells, on the scale of the formula at the fewest workers
  /// that were measured; nullopt where one number of workers was.
  std::optional<double> f_fitted;
  double c2c_predicted = 0;            ///< f(N) / (M I) by formula
  std::optional<double> c2c_measured;  ///< the same from counted bytes
  /// Samples of all workers in a measured step or round; nullopt where rounds differ.
  std::optional<double> step_samples;
  double compute_us = 0;   ///< T_comp: a step without communication, all workers at once
  double flops_per_s = 0;  ///< F
  std::optional<double> communication_us;  ///< communication busy, hidden or not
  std::vector<double> speedups;            ///< over one worker, of each launch
  double messages = 0;                     ///< of a step
  /// T(m) = alpha + beta m of the method's own messages; nullopt where nothing was fitted, and
  /// for rounds of local steps, of which nothing is foretold.
  std::optional<double> alpha_us;
  double beta_us_per_byte = 0;
  std::string fitted_from;  ///< "cost table" of the same launches, or "micro-benchmark"

  /// B = f(N) / beta; nullopt without a fit, and where bytes cost nothing.
  [[nodiscard]] std::optional<double> link_bytes_per_s() const;
  /// T_comm / T_comp = C2C b F / B; nullopt without a fit.
  [[nodiscard]] std::optional<double> ratio_predicted() const;
  [[nodiscard]] std::optional<double> ratio_measured() const;
  /// A step as C2C and the fit have it: computation and communication one after the other for a
  /// method without scheduling, else the longer of the two; start-up times of all messages counted.
  [[nodiscard]] std::optional<double> expected_us() const;
};

/// Of all training cells of a run, in the order of its figures.
/// @param figures of that run
std::vector<C2cCell> c2c_cells(const Reader& reader, std::int64_t run_row,
                               const std::vector<CellFigure>& figures);

/// The best lossless method of one workload against what communication may take there.
struct Saturation {
  const C2cCell* best = nullptr;  ///< refers to the list given
  std::size_t methods = 0;        ///< measured
  bool saturated = false;
  std::string advice;  ///< "" = not saturated
};

/// A row per environment, backend, model, batch and workers; the advice names the lossy
/// configuration that was measured to help there.
/// @param measured of the database that the cells are of
std::vector<Saturation> saturations(MeasuredTargets& measured, std::int64_t run_row,
                                    const std::vector<C2cCell>& cells);

/// What is printed under a run's answer; empty where nothing is saturated.
std::vector<std::string> saturation_notes(const Reader& reader, std::int64_t run_row,
                                          const std::vector<C2cCell>& cells);

}  // namespace dynamiccl
