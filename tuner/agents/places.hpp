#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tuner/agents/agent.hpp"

// What was measured elsewhere, as a search's start in a new place.
namespace dynamiccl {

/// What settings of one cell take in one place, over the library's own choice there.
struct PlacedCell {
  std::string place;          ///< for people: "2x H200: cross-docker"
  bool shared_memory = true;  ///< ranks reach each other through it
  TaskKey key;
  std::map<std::string, double> log_ratio;  ///< ln(time over the default's), by setting_key()
};

/// What a setting sets, whatever space it is an arm of: "ring segment_bytes=8192".
std::string setting_key(const ActionSettings& setting);

/// One line per cell, fields parted by tabs. @throws Error(data) for what is no such file
std::vector<PlacedCell> read_places(const std::string& path);
std::string places_text(const std::vector<PlacedCell>& cells);
/// The file that comes with the program; "" = none.
std::string shipped_places();

/// How a task's settings stand in other places.
struct PlaceRanking {
  std::vector<double> log_ratio;  ///< by arm
  std::vector<double> weight;     ///< of all cells that say it; 0 = measured nowhere
  std::set<std::string> places;   ///< that it was drawn from
};
/// The mean over places of each setting's ln(time over the default's): of the same collective and
/// library, weighed by how near size and ranks are, and less where ranks reach each other
/// otherwise.
PlaceRanking rank_by_places(const Task& task, bool shared_memory,
                            const std::vector<PlacedCell>& cells);

/// Makes it what the task's agents expect before any measurement, together with what they expected:
/// the fewer and farther the places, the more of that stays. @returns whether any place knew a
/// setting
bool start_from(Task& task, const PlaceRanking& ranking);

}  // namespace dynamiccl
