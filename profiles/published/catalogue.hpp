#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

/// Something that the studies name and that is known by name only: state, never a choice.
struct CatalogueEntry {
  std::string name;
  std::string kind;         ///< "framework", "library", "server transport", ...
  std::string family;       ///< what it is one of: "parameter server", "sparse data", ...
  std::string here;         ///< what of this program does the same; "" = nothing
  std::string note;         ///< "" = none
  std::string requirement;  ///< its row of docs/requirements.md
};

/// @param toml_text the text of profiles/published/catalogue.toml
/// @param source names it in errors
/// @throws Error(input) as source:line:col for a key that is missing or unknown, or a name that
/// comes twice
std::vector<CatalogueEntry> parse_catalogue(const std::string& toml_text,
                                            const std::string& source);

}  // namespace dynamiccl
