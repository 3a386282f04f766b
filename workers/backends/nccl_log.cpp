#include "workers/backends/nccl_log.hpp"

#include <charconv>
#include <optional>
#include <string_view>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// "0[4b000]" or "12[3]" -> 0, 12.
std::optional<int> rank_before_bracket(std::string_view text) {
  int rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  const auto used = static_cast<std::size_t>(end - text.data());
  if (error != std::errc() || used >= text.size() || text[used] != '[') return std::nullopt;
  return rank;
}

/// "Channel 00/1 : 0[0] -> 1[1] [send] via NET/Socket/0/GDRDMA"
void read_channel(std::string_view line, NcclConnections& found) {
  const auto via = line.find(" via ");
  const auto arrow = line.find(" -> ");
  const auto colon = line.find(" : ");
  if (via == std::string_view::npos || arrow == std::string_view::npos ||
      colon == std::string_view::npos || !(colon < arrow && arrow < via))
    return;
  const auto from = rank_before_bracket(line.substr(colon + 3));
  const auto to = rank_before_bracket(line.substr(arrow + 4));
  if (!from || !to) return;
  std::string way(trim(line.substr(via + 5)));
  // "... comm 0x55 nRanks 04" follows in some versions.
  way.resize(std::min(way.find(' '), way.size()));
  if (way.empty()) return;
  ++found.ways[way];
  found.pairs[{*from, *to}].insert(way);
}

}  // namespace

NcclConnections parse_nccl_log(const std::string& log) {
  NcclConnections found;
  constexpr std::string_view kNetwork = "Using network ";
  constexpr std::string_view kWarning = "NCCL WARN ";
  constexpr std::string_view kHost = "NCCL_HOSTID set by environment to ";
  std::string_view rest(log);
  while (!rest.empty()) {
    const auto end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (const auto at = line.find("Channel "); at != std::string_view::npos)
      read_channel(line.substr(at), found);
    else if (const auto host = line.find(kHost); host != std::string_view::npos)
      found.host = trim(line.substr(host + kHost.size()));
    else if (const auto network = line.find(kNetwork); network != std::string_view::npos)
      found.networks.emplace(trim(line.substr(network + kNetwork.size())));
    else if (const auto warning = line.find(kWarning); warning != std::string_view::npos)
      found.warnings.emplace(trim(line.substr(warning + kWarning.size())));
  }
  return found;
}

std::string transport_of_way(const std::string& way) {
  if (way.starts_with("P2P")) return "p2p";
  if (way.starts_with("SHM")) return "shm";
  if (way.starts_with("NET")) return "net";
  return way.starts_with("COLLNET") ? "collnet" : "";
}

std::string transport_of_counts(double p2p, double shm, double net) {
  const int kinds = (p2p > 0 ? 1 : 0) + (shm > 0 ? 1 : 0) + (net > 0 ? 1 : 0);
  if (kinds > 1) return "mixed";
  if (p2p > 0) return "p2p";
  return shm > 0 ? "shm" : "net";
}

}  // namespace dynamiccl
