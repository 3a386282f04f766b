#include "tuner/action/ll128.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

namespace dynamiccl {
namespace {

/// Names by which the driver knows GPUs of these architectures that have NVLink; workstation cards
/// with bridges (8.6) are none of them.
constexpr std::array<std::string_view, 12> kProved{"V100", "A100", "A800",  "H100",
                                                   "H800", "H200", "H20",   "GH200",
                                                   "B100", "B200", "GB200", "GB300"};

bool is_proved(const std::string& name) {
  // "NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-16GB".
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t end = std::min(name.find_first_of(" -", at), name.size());
    const std::string_view word = std::string_view(name).substr(at, end - at);
    if (std::find(kProved.begin(), kProved.end(), word) != kProved.end()) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

std::string why_no_ll128(const nlohmann::json& facts) {
  const nlohmann::json::json_pointer nvml_at("/gpu/nvml");
  if (!facts.is_object() || !facts.contains(nvml_at) || !facts[nvml_at].is_object())
    return "NVML does not tell how this machine's GPUs are joined";
  const nlohmann::json& nvml = facts[nvml_at];
  const auto devices = nvml.find("devices");
  const auto paths = nvml.find("p2p");
  if (devices == nvml.end() || !devices->is_array() || paths == nvml.end() || !paths->is_array())
    return "NVML does not tell how this machine's GPUs are joined";
  if (devices->size() < 2 || paths->size() != devices->size())
    return "there are no two GPUs to be joined";
  std::set<std::string> models;
  for (const auto& device : *devices) {
    const auto name = device.is_object() ? device.find("name") : device.end();
    const bool named = device.is_object() && name != device.end() && name->is_string();
    models.insert(named ? name->get<std::string>() : "");
  }
  if (models.size() != 1) return "the GPUs are of several models";
  if (!is_proved(*models.begin())) return "NCCL does not take LL128 on \"" + *models.begin() + "\"";
  for (std::size_t from = 0; from < paths->size(); ++from)
    for (std::size_t to = 0; to < paths->size(); ++to)
      if (from != to && (!(*paths)[from].is_array() || (*paths)[from].size() != paths->size() ||
                         (*paths)[from][to] != "nvlink"))
        return "two GPUs are not joined by NVLink";
  return "";
}

}  // namespace dynamiccl
