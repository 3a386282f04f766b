#pragma once

#include <string>
#include <vector>

#include "core/statistics/independence.hpp"
#include "db/reader.hpp"
#include "reports/model/figures.hpp"

namespace dynamiccl {

/// The launches of one group of one run, tested for independence of each other.
struct GroupIndependence {
  CellFigure group;  ///< axes that its cells have in common
  std::size_t launches = 0;
  std::size_t cells = 0;                 ///< with all of the launches
  std::optional<IndependenceTest> test;  ///< nullopt: too few launches
  double p = 1;                          ///< adjusted for the number of groups (Holm)
  [[nodiscard]] bool fails() const { return test && p < 0.05; }
};

/// One entry per group, in the order of the figures. Cells that lack one of the group's launches
/// take no part.
std::vector<GroupIndependence> test_groups(const std::vector<CellFigure>& figures);

/// Measurements of a run that count although none of their results was compared with what was to
/// be expected. Those without data have nothing to compare.
struct Unverified {
  std::int64_t cells = 0;
  std::int64_t of = 0;  ///< all that count
};
Unverified unverified_cells(const Reader& reader, const std::string& run_uuid);

/// What the times of simulated environments are, and how far off: a sentence for each.
/// @param run_uuid "": of all runs
/// @param environments others are left out
std::vector<std::string> simulated_notes(const Reader& reader, const std::string& run_uuid,
                                         const std::set<std::string>& environments);

/// What speaks for and against a run's intervals, one sentence each: verification, noise gate,
/// warm-up, independence of launches, clocks, stragglers, stopping; of a simulated run, that it is
/// one. Nothing is left out of the
/// figures for any of it.
/// @param figures all of the run: the test of independence is adjusted for all of its groups
/// @param shown those spoken of
std::vector<std::string> trust_notes(const Reader& reader, const std::string& run_uuid,
                                     const std::vector<CellFigure>& figures,
                                     const std::vector<CellFigure>& shown);
inline std::vector<std::string> trust_notes(const Reader& reader, const std::string& run_uuid,
                                            const std::vector<CellFigure>& figures) {
  return trust_notes(reader, run_uuid, figures, figures);
}

/// Those of trust_notes() that speak against the figures.
std::vector<std::string> doubts(const Reader& reader, const std::string& run_uuid,
                                const std::vector<CellFigure>& figures);

}  // namespace dynamiccl
