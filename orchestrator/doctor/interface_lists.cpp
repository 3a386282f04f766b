#include "orchestrator/doctor/interface_lists.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// @param text "172.17.0.1", with or without a length of prefix behind it
std::optional<std::uint32_t> ipv4_of(const std::string& text) {
  in_addr address{};
  if (inet_pton(AF_INET, text.substr(0, text.find('/')).c_str(), &address) != 1)
    return std::nullopt;
  return ntohl(address.s_addr);
}

/// What is no subnet holds no address: Open MPI warns of such an entry and goes on without it.
bool subnet_holds(const std::string& subnet, const std::string& address) {
  const auto base = ipv4_of(subnet);
  const auto tested = ipv4_of(address);
  const std::string_view digits = std::string_view(subnet).substr(subnet.find('/') + 1);
  unsigned length = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), length);
  if (!base || !tested || parsed.ec != std::errc() || length > 32) return false;
  const std::uint64_t mask = ~std::uint64_t{0} << (32 - length);
  return ((*base ^ *tested) & mask) == 0;
}

}  // namespace

bool openmpi_list_names(const std::string& list, const NamedInterface& interface) {
  const auto entries = split(list, ',');
  return std::any_of(entries.begin(), entries.end(), [&](const std::string& written) {
    const std::string entry(trim(written));
    if (entry.find('/') == std::string::npos) return entry == interface.name;
    return std::any_of(interface.addresses.begin(), interface.addresses.end(),
                       [&](const std::string& address) { return subnet_holds(entry, address); });
  });
}

bool nccl_list_admits(const std::string& list, const std::string& name) {
  if (list.size() < 2) return false;
  std::string_view rest(list);
  const bool all_but = rest.starts_with('^');
  if (all_but) rest.remove_prefix(1);
  const bool whole = rest.starts_with('=');
  if (whole) rest.remove_prefix(1);
  const auto entries = split(rest, ',');
  const bool named = std::any_of(entries.begin(), entries.end(), [&](const std::string& entry) {
    return !entry.empty() && (whole ? name == entry : name.starts_with(entry));
  });
  return named != all_but;
}

bool plain_list_names(const std::string& list, const std::string& name) {
  const auto entries = split(list, ',');
  return std::any_of(entries.begin(), entries.end(),
                     [&](const std::string& entry) { return trim(entry) == name; });
}

}  // namespace dynamiccl
