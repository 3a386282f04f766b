#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/statistics/verdict.hpp"
#include "reports/model/figures.hpp"

namespace dynamiccl {

/// One measured cell as query `flips` names it. The figure's axes are what must be equal on both
/// sides: size_bytes is 0 for training, whose gradients' bytes follow from the model, and ranks are
/// workers, without the server.
struct FlipCell {
  CellFigure figure;
  std::string model;
  std::int64_t batch = 0;
  std::string side;  ///< which of the two it is, with settings of its own
  bool second = false;
};
/// All that is the same on both sides.
std::string key_of(const FlipCell& cell);

/// The same cell measured on both sides.
struct FlipPoint {
  std::string factor;
  FlipCell a;
  std::string b;
  Ratio ratio;  ///< time of b / time of a
  Verdict verdict = Verdict::unclear;
};

constexpr std::string_view kBackendFactor = "backend";

/// Server and ring, methods that merge and that cut gradients, and every two backends, judged
/// together.
/// @param figures of one run
std::vector<FlipPoint> flip_points(const std::vector<CellFigure>& figures);

/// The size at which two are equally fast: where the logarithm of their ratio is zero, on a line
/// between the neighbours that it changes sign between, sizes on a logarithmic scale. Rounded to
/// what a few sizes can tell; next to a size of 0 the other one; the last size where the sign never
/// changes.
/// @param log_ratios size in bytes and logarithm of the ratio, sizes rising, not empty
double equal_size(const std::vector<std::pair<std::int64_t, double>>& log_ratios);

}  // namespace dynamiccl
