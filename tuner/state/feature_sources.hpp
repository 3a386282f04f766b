#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tuner/state/features.hpp"

namespace dynamiccl {

/// Where a live run gets a feature from, in the order of feature_table(). CPU runs of one node;
/// what more nodes or GPUs change is said in the text.
struct FeatureSource {
  std::string_view feature;
  std::string_view training;  ///< in a training cell with a tuner; "" = not known there
  std::string_view tune;      ///< in a cell that `tune` searches; "" = not known there
  std::string_view absent;    ///< why, where one of the two is ""
  /// The policy sees it: its training knew it. All others are zero for the policy in training and
  /// live alike, so that no weight acts that nothing has taught.
  bool in_policy;
  bool (*known)(const State& state);
};

std::span<const FeatureSource> feature_sources();

/// The table as Markdown, for docs/reference/state-features.md.
std::string feature_sources_page();

}  // namespace dynamiccl
