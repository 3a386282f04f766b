#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dynamiccl {

/// Where a feature of the sources went in the canonical vector (E-63, X-47).
struct FeatureMapping {
  std::string_view requirement;  ///< "E-05"
  std::string_view source_name;  ///< as the source calls it
  std::string_view feature;      ///< name in feature_table(), or "" for what is no input column
  std::string_view how;          ///< how the source's value reads there
};

/// E-01 to E-63, one row each, in order.
std::span<const FeatureMapping> feature_mappings();

/// A source's spelling of a canonical value: feature, spelling -> the value's name in its table.
/// "sync", "FL" -> nullopt; "setting", "FL" -> "federated". Letter case does not count.
std::optional<std::string_view> find_alias(std::string_view feature, std::string_view spelling);

}  // namespace dynamiccl
