#pragma once

#include <vector>

#include "tuner/simulator/transport_model.hpp"

namespace dynamiccl {

/// One measured point of a sweep over NCCL's resources at one size.
struct TransportPoint {
  TransportKnobs knobs;
  double bytes_per_us = 0;
};
struct TransportFit {
  TransportModel model;
  double relative_error = 0;  ///< root mean square of ln(measured / model)
};

/// Fits the model of transport_model.hpp to bandwidths by coordinate search on logarithms from
/// several starts (the minimum of two curves has kinks). @throws Error(input) for fewer than six
/// points
TransportFit fit_transport(const std::vector<TransportPoint>& points);

/// Does every line through the measured grid (one knob varied, the others fixed) rise and then
/// fall? Steps back of less than `tolerance` do not count.
/// @returns share of lines that are unimodal; 1 when there is no line of at least three points
double unimodal_share(const std::vector<TransportPoint>& points, double tolerance = 0.03);

}  // namespace dynamiccl
