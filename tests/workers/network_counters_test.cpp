#include "workers/network_counters.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <vector>

using namespace dynamiccl;

namespace {

struct CounterFolder {
  std::filesystem::path path;
  CounterFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "counters-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~CounterFolder() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::string file(const std::string& name) const { return path / name; }
};

constexpr const char* kHeading =
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop "
    "fifo colls carrier compressed\n";

}  // namespace

TEST_CASE("what passed an interface is the difference of the kernel's counters", "[H-13]") {
  const CounterFolder folder;
  std::ofstream(folder.file("before")) << kHeading << "    lo: 10 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0\n"
                                       << "  eth0:1000 10 1 2 0 0 0 9 500 5 3 4 0 0 0 0\n"
                                       << "  gone: 7 7 0 0 0 0 0 0 7 7 0 0 0 0 0 0\n";
  std::ofstream(folder.file("after")) << kHeading << "    lo: 10 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0\n"
                                      << "  eth0:4000 40 2 4 0 0 0 9 1500 25 6 8 0 0 0 0\n"
                                      << "  new: 5 1 0 0 0 0 0 0 6 2 0 0 0 0 0 0\n";
  const std::string none = folder.file("none");
  const auto passed = passed_between(network_counts(folder.file("before"), none),
                                     network_counts(folder.file("after"), none));
  CHECK(to_json(passed) == nlohmann::json::parse(R"({
    "eth0": {"rx_bytes": 3000, "rx_packets": 30, "rx_errors": 1, "rx_drops": 2,
             "tx_bytes": 1000, "tx_packets": 20, "tx_errors": 3, "tx_drops": 4},
    "new": {"rx_bytes": 5, "rx_packets": 1, "rx_errors": 0, "rx_drops": 0,
            "tx_bytes": 6, "tx_packets": 2, "tx_errors": 0, "tx_drops": 0}})"));
  // Counters that were begun anew, as of an interface that was made again, say nothing.
  CHECK(passed_between(network_counts(folder.file("after"), none),
                       network_counts(folder.file("before"), none))
            .count("eth0") == 0);
}

TEST_CASE("an RDMA device's port counts in words of four bytes", "[H-13]") {
  const CounterFolder folder;
  const std::string counters = folder.file("mlx5_0/ports/1/counters");
  std::filesystem::create_directories(counters);
  std::filesystem::create_directories(folder.file("silent/ports/1"));
  for (const auto& [name, value] : std::map<std::string, int>{{"port_rcv_data", 25},
                                                              {"port_xmit_data", 50},
                                                              {"port_rcv_packets", 3},
                                                              {"port_xmit_packets", 4},
                                                              {"port_xmit_discards", 1},
                                                              {"port_rcv_errors", 2}})
    std::ofstream(counters + "/" + name) << value << "\n";
  const auto counts = network_counts(folder.file("none"), folder.path);
  REQUIRE(counts.size() == 1);
  const InterfaceCounts& port = counts.at("mlx5_0/1");
  CHECK(port.rx_bytes == 100);
  CHECK(port.tx_bytes == 200);
  CHECK(port.rx_packets == 3);
  CHECK(port.tx_packets == 4);
  CHECK(port.tx_drops == 1);
  CHECK(port.rx_errors == 2);
}

TEST_CASE("bytes that go over this machine's loopback interface are counted there", "[H-13]") {
  const auto before = network_counts();
  REQUIRE(before.count("lo") == 1);
  const int receiver = socket(AF_INET, SOCK_DGRAM, 0);
  const int sender = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(bind(receiver, reinterpret_cast<sockaddr*>(&address), length) == 0);
  getsockname(receiver, reinterpret_cast<sockaddr*>(&address), &length);
  const std::vector<char> data(10'000);
  REQUIRE(sendto(sender, data.data(), data.size(), 0, reinterpret_cast<sockaddr*>(&address),
                 length) == 10'000);
  std::vector<char> came(data.size());
  REQUIRE(recv(receiver, came.data(), came.size(), MSG_WAITALL) == 10'000);
  close(receiver);
  close(sender);
  const auto passed = passed_between(before, network_counts());
  REQUIRE(passed.count("lo") == 1);
  CHECK(passed.at("lo").tx_bytes >= 10'000);
  CHECK(passed.at("lo").rx_packets >= 1);
}
