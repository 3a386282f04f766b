#pragma once

#include <string>

#include "reports/page/paper_figures.hpp"

namespace dynamiccl {

/// A row for each point: panel, line, x, value and interval in the units of the database.
std::string paper_csv(const PaperFigure& figure);

/// A LaTeX table (booktabs) for each panel: x down, lines across, values with their intervals.
std::string paper_latex(const PaperFigure& figure);

/// A script of gnuplot that draws the figure into NAME.svg and NAME.pdf of the folder in which it
/// is started. It holds the data: colours and sizes are changed in it by hand.
std::string paper_gnuplot(const PaperFigure& figure);

}  // namespace dynamiccl
