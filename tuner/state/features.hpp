#pragma once

#include <Eigen/Core>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/state/state.hpp"

namespace dynamiccl {

/// How a feature is encoded, and whether it changes from call to call.
enum class FeatureType { boolean, categorical, number, vector };
enum class FeatureRefresh { fixed, per_call };
template <>
struct NameTable<FeatureType> {
  static constexpr std::string_view what = "feature type";
  static constexpr std::array entries{
      Named{FeatureType::boolean, "boolean"}, Named{FeatureType::categorical, "one-hot"},
      Named{FeatureType::number, "number"}, Named{FeatureType::vector, "vector"}};
};
template <>
struct NameTable<FeatureRefresh> {
  static constexpr std::string_view what = "feature refresh";
  static constexpr std::array entries{Named{FeatureRefresh::fixed, "static"},
                                      Named{FeatureRefresh::per_call, "per-call"}};
};

/// Where a live run gets a feature from. CPU runs of one node; what more nodes or GPUs change is
/// said in the text.
struct FeatureSource {
  std::string_view training;  ///< in a training cell with a tuner; "" = not known there
  std::string_view tune;      ///< in a cell that `tune` searches; "" = not known there
  std::string_view absent;    ///< why, where one of the two is ""
  /// The policy sees it: its training knew it. All others are zero for the policy in training and
  /// live alike, so that no weight acts that nothing has taught.
  bool in_policy;
};

/// One row of the canonical state vector.
struct Feature {
  std::string_view name;
  FeatureType type;
  std::string_view unit;  ///< of the encoded number; "" for booleans and categories
  FeatureRefresh refresh;
  /// What goes first when a model must be smaller: cluster before job before library's own;
  /// 0 is kept longest.
  int drop_rank;
  int width;  ///< columns
  /// Writes `width` numbers, each within [-4, 4]. Booleans: -1, 1 and 0 for unknown; categories:
  /// one-hot, all zero for unknown; numbers: value and 1, or 0 and 0 for unknown.
  void (*encode)(const State& state, float* out);
  FeatureSource source;
  bool (*known)(const State& state);
};

/// Every feature in the order of the columns.
std::span<const Feature> feature_table();

/// The features' sources as Markdown, for docs/reference/state-features.md.
std::string feature_sources_page();

/// Columns of the whole vector.
int state_width();

/// Shape [state_width()].
Eigen::VectorXf encode(const State& state);

/// Digest of names, types and widths: a policy trained on another vector is refused.
const std::string& feature_digest();

/// Of these features those that remain when at most `columns` columns may be used, in their order:
/// by `drop_rank`, so that what the cluster is stays longer than what a job or a library is.
std::vector<const Feature*> keep_features(std::vector<const Feature*> features, int columns);

}  // namespace dynamiccl
