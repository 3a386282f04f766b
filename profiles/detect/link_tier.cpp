#include "profiles/detect/link_tier.hpp"

#include <string>

#include "profiles/detect/fact_access.hpp"
#include "profiles/detect/link_rates.hpp"

namespace dynamiccl {
namespace {

/// @param gbit_per_s the slowest link that is still of the nearer tier
bool at_least(const std::optional<LinkRate>& rate, double gbit_per_s) {
  return rate && rate->bytes_per_s >= gbit_per_s * 1e9 / 8;
}

}  // namespace

std::optional<int> link_tier(const nlohmann::json& regime, int nodes) {
  const std::string inside = fact_text(regime, "ingredients", "intra_link");
  const std::string outside = fact_text(regime, "ingredients", "inter_link");
  const std::string rated = fact_text(regime, "ingredients", "inter_tier");
  const bool stands_for_another = inside == "none" && rated.starts_with("shaped-");
  if (nodes <= 1 && !stands_for_another) {
    if (inside == "nvlink" || inside == "shm") return 1;
    if (inside == "pcie" || inside == "none") return 2;
    return std::nullopt;
  }
  if (outside == "nvswitch") return 1;
  const auto rate = inter_rate(rated);
  // A port that states no rate is taken for a fast one, as RDMA ports are.
  if (outside == "infiniband" || outside.starts_with("roce"))
    return rate && !at_least(rate, 100) ? 3 : 2;
  if (outside == "tcp" || outside == "none") return at_least(rate, 25) ? 3 : 4;
  return std::nullopt;
}

}  // namespace dynamiccl
