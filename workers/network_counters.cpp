#include "workers/network_counters.hpp"

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

struct Counter {
  const char* name;  ///< in records
  std::uint64_t InterfaceCounts::*member;
  const char* file;  ///< of an RDMA device's port; "" = none
  std::uint64_t unit = 1;
};
constexpr std::array kCounters{
    Counter{"rx_bytes", &InterfaceCounts::rx_bytes, "port_rcv_data", 4},
    Counter{"rx_packets", &InterfaceCounts::rx_packets, "port_rcv_packets"},
    Counter{"rx_drops", &InterfaceCounts::rx_drops, ""},
    Counter{"rx_errors", &InterfaceCounts::rx_errors, "port_rcv_errors"},
    Counter{"tx_bytes", &InterfaceCounts::tx_bytes, "port_xmit_data", 4},
    Counter{"tx_packets", &InterfaceCounts::tx_packets, "port_xmit_packets"},
    Counter{"tx_drops", &InterfaceCounts::tx_drops, "port_xmit_discards"},
    Counter{"tx_errors", &InterfaceCounts::tx_errors, ""}};

void read_interfaces(const std::string& path, NetworkCounts& found) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;  // a heading
    std::istringstream numbers(line.substr(colon + 1));
    InterfaceCounts counts;
    std::array<std::uint64_t, 4> rest{};  // fifo, frame, compressed, multicast
    if (numbers >> counts.rx_bytes >> counts.rx_packets >> counts.rx_errors >> counts.rx_drops >>
        rest[0] >> rest[1] >> rest[2] >> rest[3] >> counts.tx_bytes >> counts.tx_packets >>
        counts.tx_errors >> counts.tx_drops)
      found[std::string(trim(line.substr(0, colon)))] = counts;
  }
}

/// @returns whether the port tells
bool read_port(const std::filesystem::path& folder, InterfaceCounts& counts) {
  bool told = false;
  for (const Counter& counter : kCounters) {
    if (*counter.file == '\0') continue;
    std::ifstream file(folder / counter.file);
    std::uint64_t value = 0;
    if (!(file >> value)) continue;
    counts.*counter.member = value * counter.unit;
    told = true;
  }
  return told;
}

template <class F>
void for_each_entry(const std::filesystem::path& folder, F&& visit) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error))
    visit(at->path());
}

}  // namespace

InterfaceCounts& InterfaceCounts::operator+=(const InterfaceCounts& other) {
  for (const Counter& counter : kCounters) this->*counter.member += other.*counter.member;
  return *this;
}

NetworkCounts network_counts(const std::string& interfaces, const std::string& devices) {
  NetworkCounts found;
  read_interfaces(interfaces, found);
  for_each_entry(devices, [&](const std::filesystem::path& device) {
    for_each_entry(device / "ports", [&](const std::filesystem::path& port) {
      InterfaceCounts counts;
      if (read_port(port / "counters", counts))
        found[device.filename().string() + "/" + port.filename().string()] = counts;
    });
  });
  return found;
}

NetworkCounts passed_between(const NetworkCounts& before, const NetworkCounts& after) {
  NetworkCounts passed;
  for (const auto& [name, now] : after) {
    const auto at = before.find(name);
    const InterfaceCounts then = at == before.end() ? InterfaceCounts{} : at->second;
    InterfaceCounts between;
    bool rose = true;
    for (const Counter& counter : kCounters) {
      rose = rose && now.*counter.member >= then.*counter.member;
      between.*counter.member = now.*counter.member - then.*counter.member;
    }
    if (rose && between.rx_packets + between.tx_packets + between.rx_bytes + between.tx_bytes > 0)
      passed[name] = between;
  }
  return passed;
}

nlohmann::json to_json(const NetworkCounts& counts) {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [name, one] : counts)
    for (const Counter& counter : kCounters) all[name][counter.name] = one.*counter.member;
  return all;
}

}  // namespace dynamiccl
