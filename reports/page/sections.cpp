#include "embedded/script_components.hpp"
#include "embedded/script_coverage.hpp"
#include "embedded/script_decisions.hpp"
#include "embedded/script_latency.hpp"
#include "embedded/script_overhead.hpp"
#include "embedded/script_overview.hpp"
#include "embedded/script_provenance.hpp"
#include "embedded/script_reference.hpp"
#include "embedded/script_regimes.hpp"
#include "embedded/script_training.hpp"
#include "reports/page/section.hpp"

namespace dynamiccl {

// One row per section of the page; adding one is described in reports/README.md.
const std::vector<PageSection>& page_sections() {
  static const std::vector<PageSection> sections{
      {"overview", nullptr, embedded::script_overview},
      {"overhead", nullptr, embedded::script_overhead},
      {"latency", latency_data, embedded::script_latency},
      {"components", nullptr, embedded::script_components},
      {"training", training_data, embedded::script_training},
      {"regimes", regimes_data, embedded::script_regimes},
      {"decisions", decisions_data, embedded::script_decisions},
      {"reference", reference_data, embedded::script_reference},
      {"coverage", coverage_data, embedded::script_coverage},
      {"provenance", provenance_data, embedded::script_provenance}};
  return sections;
}

}  // namespace dynamiccl
