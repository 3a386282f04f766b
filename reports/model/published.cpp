#include "reports/model/published.hpp"

#include <string>

#include "embedded/reference_figures.hpp"

namespace dynamiccl {

const ReferenceFigures& published_figures() {
  static const ReferenceFigures figures = parse_reference_figures(
      std::string(embedded::reference_figures), "profiles/published/figures.toml");
  return figures;
}

const TrainingStudies& training_studies() {
  static const TrainingStudies studies = parse_training_studies(
      std::string(embedded::reference_figures), "profiles/published/figures.toml");
  return studies;
}

}  // namespace dynamiccl
