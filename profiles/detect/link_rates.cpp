#include "profiles/detect/link_rates.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <string_view>
#include <system_error>

#include "profiles/detect/fact_access.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

/// Bytes per second of one lane in one direction after line coding, PCI Express base specification:
/// 8b/10b up to generation 2, 128b/130b up to 5, 242 of 256 bytes in the flits of 6.
constexpr std::array<double, 7> kLane{0,
                                      0.25e9,
                                      0.5e9,
                                      8e9 / 8 * 128 / 130,
                                      16e9 / 8 * 128 / 130,
                                      32e9 / 8 * 128 / 130,
                                      64e9 / 8 * 242 / 256};

std::optional<std::size_t> count_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::nullopt : whole_number<std::size_t>(*found);
}

std::optional<LinkRate> nvlink_rate(const json& device) {
  const auto links = count_of(device, "nvlinks_active");
  const auto each = count_of(device, "nvlink_mbyte_per_s");
  if (!links || !each || *links == 0 || *each == 0) return std::nullopt;
  return LinkRate{static_cast<double>(*links * *each) * 1e6,
                  fmt::format("{} NVLinks of a GPU", *links)};
}

std::optional<LinkRate> pcie_rate(const json& device) {
  const auto generation = count_of(device, "pcie_generation");
  const auto width = count_of(device, "pcie_width");
  if (!generation || !width || *width == 0 || *generation == 0 || *generation >= kLane.size() ||
      generation != count_of(device, "pcie_max_generation"))
    return std::nullopt;
  return LinkRate{kLane[*generation] * static_cast<double>(*width),
                  fmt::format("PCIe {}.0 x{} of a GPU", *generation, *width)};
}

/// The least of the devices' rates; nullopt where one is not known.
std::optional<LinkRate> least_rate(const json& devices, auto rate_of) {
  std::optional<LinkRate> least;
  if (!devices.is_array()) return std::nullopt;
  for (const json& device : devices) {
    if (!device.is_object()) return std::nullopt;
    const auto vendor = device.find("vendor");
    if (vendor != device.end() && *vendor != "nvidia") continue;
    const auto rate = rate_of(device);
    if (!rate) return std::nullopt;
    if (!least || rate->bytes_per_s < least->bytes_per_s) least = rate;
  }
  return least;
}

std::optional<LinkRate> rate_of_rank(const json& facts, const std::string& intra_link) {
  if (intra_link == "pcie") return least_rate(fact(facts, "gpu", "devices"), pcie_rate);
  const json& nvml = fact(facts, "gpu", "nvml");
  if (intra_link != "nvlink" || !nvml.is_object() || !nvml.contains("devices")) return std::nullopt;
  return least_rate(nvml["devices"], nvlink_rate);
}

struct TierUnit {
  std::string_view suffix;
  double bits_per_s;
};
constexpr std::array kTierUnits{TierUnit{"Mbit/s", 1e6}, TierUnit{"Gb/s", 1e9},
                                TierUnit{"GbE", 1e9}, TierUnit{"MbE", 1e6}};

}  // namespace

std::optional<LinkRate> intra_rate(const std::vector<json>& facts_of_ranks,
                                   const std::string& intra_link) {
  std::optional<LinkRate> least;
  for (const json& facts : facts_of_ranks) {
    const auto rate = rate_of_rank(facts, intra_link);
    if (!rate) return std::nullopt;
    if (!least || rate->bytes_per_s < least->bytes_per_s) least = rate;
  }
  return least;
}

std::optional<LinkRate> inter_rate(const std::string& inter_tier) {
  constexpr std::string_view kShaped = "shaped-";
  std::string_view number = inter_tier;
  if (number.starts_with(kShaped)) number.remove_prefix(kShaped.size());
  for (const auto& unit : kTierUnits) {
    if (!number.ends_with(unit.suffix)) continue;
    number.remove_suffix(unit.suffix.size());
    double value = 0;
    const char* end = number.data() + number.size();
    const auto parsed = std::from_chars(number.data(), end, value);
    if (parsed.ec != std::errc() || parsed.ptr != end || value <= 0) return std::nullopt;
    return LinkRate{value * unit.bits_per_s / 8, "link tier " + inter_tier};
  }
  return std::nullopt;
}

std::optional<double> intra_over_inter(const std::optional<LinkRate>& intra,
                                       const std::optional<LinkRate>& inter) {
  if (!intra || !inter || inter->bytes_per_s <= 0) return std::nullopt;
  return intra->bytes_per_s / inter->bytes_per_s;
}

std::string interconnect_shape(const std::optional<double>& intra_over_inter) {
  if (!intra_over_inter) return "unknown";
  return *intra_over_inter < kFlatBelow ? "flat" : "steep";
}

}  // namespace dynamiccl
