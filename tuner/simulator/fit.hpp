#pragma once

#include <map>
#include <string>
#include <vector>

#include "tuner/simulator/collective_cost.hpp"
#include "tuner/simulator/transport_model.hpp"

namespace dynamiccl {

/// One measured point of a sweep over algorithms and sizes.
struct SweepPoint {
  std::string algorithm;
  CollectiveShape shape;
  double time_us = 0;
};

/// Constants fitted to a sweep, and how well they explain it.
struct LinkFit {
  LinkParameters link;
  double relative_error = 0;  ///< root mean square of ln(measured / model) over all points
  /// Mean of ln(measured / model) per algorithm: what makes an implementation its own.
  std::map<std::string, double> offset;
  /// The same error after the offsets are taken out.
  double error_with_offsets = 0;
  /// Standard deviation of the offsets: WorldSpread::implementation.
  double offset_spread = 0;
};

/// alpha, beta, gamma >= 0 by least squares on relative residuals over every algorithm at once.
/// Points whose algorithm has no model or whose time is not above zero are left out. @throws
/// Error(input) for fewer than three usable points
LinkFit fit_link(const std::vector<SweepPoint>& points);

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
