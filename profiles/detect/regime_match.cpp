#include "core/vocabulary/text.hpp"
#include "profiles/detect/fact_access.hpp"
#include "profiles/detect/regime.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

std::string shown(const json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<std::string> differences(const json& wanted, const json& known) {
  std::vector<std::string> names;
  for (const std::string& name : regime_ingredients())
    if (fact(wanted, "ingredients", name.c_str()) != fact(known, "ingredients", name.c_str()))
      names.push_back(name);
  return names;
}

/// Among equally many differences the ones that stand later in the list are the smaller harm.
bool nearer(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  if (a.size() != b.size()) return a.size() < b.size();
  const auto& order = regime_ingredients();
  const auto rank = [&](const std::string& name) {
    return std::find(order.begin(), order.end(), name) - order.begin();
  };
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) return rank(a[i]) > rank(b[i]);
  return false;
}

}  // namespace

std::optional<RegimeMatch> match_regime(const json& wanted, const std::vector<json>& known) {
  std::optional<RegimeMatch> best;
  for (std::size_t i = 0; i < known.size(); ++i) {
    auto differing = differences(wanted, known[i]);
    if (best && !nearer(differing, best->differing)) continue;
    best = RegimeMatch{i, differing.empty(), std::move(differing), ""};
  }
  if (!best) return best;
  if (best->exact) {
    best->text = "exact";
    return best;
  }
  std::vector<std::string> parts;
  for (const std::string& name : best->differing)
    parts.push_back(name + " (" + shown(fact(known[best->index], "ingredients", name.c_str())) +
                    ", wanted " + shown(fact(wanted, "ingredients", name.c_str())) + ")");
  best->text = "nearest: differs in " + join(parts, ", ");
  return best;
}

}  // namespace dynamiccl
