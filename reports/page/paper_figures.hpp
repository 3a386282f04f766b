#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// What an axis counts; its figures are in this unit.
enum class PaperUnit { bytes, microseconds, bytes_per_s, seconds, ratio, share, count };

struct PaperPoint {
  double x = 0;
  double value = 0;
  std::optional<double> low;  ///< of its interval
  std::optional<double> high;
};

struct PaperLine {
  std::string label;
  std::vector<PaperPoint> points;  ///< by x
  std::size_t look = 0;  ///< its colour and marker: an environment's are everywhere the same
};

struct PaperPanel {
  std::string title;
  std::vector<PaperLine> lines;
};

/// One figure of the page, as data: lines over an axis, or bars that are stacked.
struct PaperFigure {
  std::string name;  ///< of its files: "latency-ring-allreduce"
  std::string title;
  std::string method;  ///< how its figures were made
  std::string x_label;
  std::string y_label;
  PaperUnit x = PaperUnit::bytes;
  PaperUnit y = PaperUnit::microseconds;
  bool bars = false;  ///< each line is a part; `places` names what x counts from 0 on
  std::vector<std::string> places;
  bool one_is_equal = false;  ///< a line at 1 belongs to it
  std::vector<PaperPanel> panels;
};

/// The figures that the page begins with, for all operations and models of the run instead of the
/// one that it shows first. Of settings those that the page begins with, and a figure of all where
/// there are few.
/// @param page what page_data() gives
std::vector<PaperFigure> paper_figures(const nlohmann::json& page);

}  // namespace dynamiccl
