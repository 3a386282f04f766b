#include <map>

#include "core/alpha_beta.hpp"
#include "reports/html/section.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

json piece_json(const PiecewiseAlphaBeta::Piece& piece) {
  const double beta = piece.line.beta_us_per_byte;
  return {{"from", piece.from.count()},
          {"to", piece.to.count()},
          {"alpha_us", rounded(piece.line.alpha.count())},
          {"bytes_per_s", beta > 0 ? rounded(1e6 / beta) : json()},
          {"error", rounded(piece.line.relative_error)}};
}

}  // namespace

// A curve is named by its first cell's place in the list of cells: the page knows the rest.
json latency_data(const PageContext& page) {
  struct Curve {
    std::size_t first_cell = 0;
    std::vector<TimedSize> points;
  };
  std::map<std::string, Curve> curves;
  for (std::size_t i = 0; i < page.figures.size(); ++i) {
    const auto& f = page.figures[i];
    const auto [curve, is_new] = curves.try_emplace(key_without(f, "size_bytes"));
    if (is_new) curve->second.first_cell = i;
    if (f.size_bytes <= 0 || f.median_us() <= 0) continue;
    curve->second.points.push_back(
        {Bytes(static_cast<std::uint64_t>(f.size_bytes)), Micros(f.median_us())});
  }
  json fits = json::array();
  for (auto& [key, curve] : curves) {
    // Two sizes always lie on a line: that is no fit.
    if (curve.points.size() < 3) continue;
    const auto fit = fit_piecewise(std::move(curve.points));
    if (!fit) continue;
    json pieces = json::array();
    for (const auto& piece : fit->pieces) pieces.push_back(piece_json(piece));
    fits.push_back({{"cell", curve.first_cell},
                    {"pieces", std::move(pieces)},
                    {"error", rounded(fit->relative_error)}});
  }
  return {{"fits", std::move(fits)}};
}

}  // namespace dynamiccl
