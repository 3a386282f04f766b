#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tuner/agents/agent.hpp"

namespace dynamiccl {

/// What a setting is, in the words that the sources advise in. Read from the arm's values, whatever
/// the knob is called: per call, by environment variable, or in a stored grid.
struct ArmTraits {
  enum class Shape { unsaid, tree, ring, hierarchical };
  enum class Protocol { unsaid, low_latency, simple };
  Shape shape = Shape::unsaid;
  Protocol protocol = Protocol::unsaid;
  /// Channels against the usual: -1 an eighth or fewer, 1 eight times or more; 0 as usual, or
  /// unsaid.
  double channels = 0;
};
/// @param usual_channels what the library takes by itself
ArmTraits traits_of(const ActionSpace& space, const Action& action, double usual_channels);

/// "Such calls go well with such settings." A term of the prior's mean.
struct Hint {
  std::string_view name;
  std::string_view text;
  /// How much of the advice holds for this task, 0 (not at all, or not known) to 1.
  double (*applies)(const Task& task);
  /// -1: the setting is what is advised; 1: what is advised against; 0: not spoken of.
  double (*judges)(const ArmTraits& arm, const Task& task);
};
std::span<const Hint> hints();

/// ln(time) that the hints add to each arm; the default gets nothing: advice is about settings.
/// @param weight ln(time) of one hint that holds wholly
/// @returns one entry per arm
std::vector<double> hinted_log_us(const Task& task, double weight);

/// "Here it pays to search" (factor above 1), or "here the default does" (below). A term of the
/// prior's spread: how far settings of such a task may be from each other.
struct Boldness {
  std::string_view name;
  std::string_view text;
  bool (*applies)(const Task& task);
  double factor;
};
std::span<const Boldness> boldness_terms();

/// Factor on the standard deviations of what arms differ by in a task, 1/2 to 2: the product of the
/// terms that apply, and of communication to computation where the job is known.
double boldness_of(const Task& task);

}  // namespace dynamiccl
