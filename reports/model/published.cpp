#include "reports/model/published.hpp"

#include <sstream>
#include <string>

#include "core/vocabulary/parsed_json.hpp"
#include "embedded/reference_figures.hpp"
#include "profiles/strict_toml.hpp"

namespace dynamiccl {

const nlohmann::json& published_figures() {
  static const nlohmann::json figures = [] {
    std::ostringstream text;
    text << toml::json_formatter{
        parse_toml(std::string(embedded::reference_figures), "profiles/published/figures.toml")};
    return parsed_json(text.str());
  }();
  return figures;
}

}  // namespace dynamiccl
