#include "workers/transport.hpp"

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "core/vocabulary/units.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

/// Calls visit(descriptor, link target) for every open descriptor of this process.
template <class F>
void for_each_descriptor(F&& visit) {
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(at->path(), gone);
    if (!gone) visit(std::stoi(at->path().filename().string()), target.string());
  }
}

/// Bytes this TCP socket has sent; 0 for any other descriptor.
std::uint64_t sent_bytes(int descriptor) {
  int protocol = 0;
  socklen_t length = sizeof protocol;
  if (getsockopt(descriptor, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) != 0 ||
      protocol != IPPROTO_TCP) {
    return 0;
  }
  tcp_info info{};
  length = sizeof info;
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
  // Kernels before 4.19 do not fill tcpi_bytes_sent.
  const bool has_sent = length >= offsetof(tcp_info, tcpi_bytes_sent) + sizeof info.tcpi_bytes_sent;
  return has_sent ? info.tcpi_bytes_sent - info.tcpi_bytes_retrans : info.tcpi_bytes_acked;
}

std::map<std::uint64_t, std::uint64_t> sent_by_socket() {
  std::map<std::uint64_t, std::uint64_t> sent;
  for_each_descriptor([&](int descriptor, std::string_view target) {
    if (!target.starts_with("socket:")) return;
    struct stat status {};
    if (fstat(descriptor, &status) == 0) sent[status.st_ino] = sent_bytes(descriptor);
  });
  return sent;
}

nlohmann::json to_json(const Traffic& traffic) {
  return {{"tcp_bytes", traffic.tcp_bytes},
          {"cma_bytes", traffic.cma_bytes},
          {"cma_calls", traffic.cma_calls},
          {"cma_errors", traffic.cma_errors}};
}

std::string amount(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.3g} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.3g} MB", bytes / 1e6);
  if (bytes >= 1e3) return fmt::format("{:.3g} kB", bytes / 1e3);
  return fmt::format("{:.0f} B", bytes);
}

}  // namespace

Traffic& Traffic::operator+=(const Traffic& other) {
  tcp_bytes += other.tcp_bytes;
  cma_bytes += other.cma_bytes;
  cma_calls += other.cma_calls;
  cma_errors += other.cma_errors;
  for (const auto& [name, counts] : other.network) network[name] += counts;
  return *this;
}

TransportWatch::TransportWatch()
    : sent_by_socket_(sent_by_socket()),
      cma_before_(cma_traffic()),
      network_before_(network_counts()) {}

Traffic TransportWatch::lap() {
  auto sent = sent_by_socket();
  const Traffic cma = cma_traffic();
  Traffic moved;
  for (const auto& [inode, bytes] : sent) {
    const auto before = sent_by_socket_.find(inode);
    moved.tcp_bytes +=
        bytes - (before == sent_by_socket_.end() ? 0 : std::min(bytes, before->second));
  }
  moved.cma_bytes = cma.cma_bytes - cma_before_.cma_bytes;
  moved.cma_calls = cma.cma_calls - cma_before_.cma_calls;
  moved.cma_errors = cma.cma_errors - cma_before_.cma_errors;
  auto network = network_counts();
  moved.network = passed_between(network_before_, network);
  sent_by_socket_ = std::move(sent);
  cma_before_ = cma;
  network_before_ = std::move(network);
  return moved;
}

void TransportProof::add_cell(const std::string& cell_id, const Traffic& traffic,
                              std::uint64_t payload_bytes, std::uint64_t used_bytes) {
  traffic_ += traffic;
  payload_bytes_ += payload_bytes;
  auto entry = to_json(traffic);
  entry["payload_bytes"] = payload_bytes;
  entry["used_bytes"] = used_bytes;
  if (!traffic.network.empty()) entry["network"] = to_json(traffic.network);
  cells_[cell_id] = std::move(entry);
}

TransportRecord TransportProof::conclude(TransportWatch& watch) {
  if (auto claim = comm_.transport_claim()) return record_claim(*std::move(claim));
  constexpr std::size_t kProbeBytes = std::size_t{1} << 20;
  constexpr int kProbes = 4;
  watch.lap();
  if (comm_.size() > 1) {
    std::vector<std::byte> send(kProbeBytes);
    std::vector<std::byte> receive(kProbeBytes);
    const int size = comm_.size();
    for (int i = 0; i < kProbes; ++i) {
      exchange(comm_, send.data(), kProbeBytes, (comm_.rank() + 1) % size, receive.data(),
               kProbeBytes, (comm_.rank() + size - 1) % size, kNeighbourTag);
    }
  }
  const Traffic probe = watch.lap();
  const bool net = remaining_transport() == "net";
  const double probed = comm_.size() > 1 ? double{kProbeBytes} * kProbes : 0.0;
  const auto sums = sum_over_ranks(
      comm_, {static_cast<double>(payload_bytes_), static_cast<double>(traffic_.tcp_bytes),
              static_cast<double>(traffic_.cma_bytes), static_cast<double>(traffic_.cma_errors),
              probed, static_cast<double>(probe.tcp_bytes), static_cast<double>(probe.cma_bytes),
              static_cast<double>(probe.cma_errors), net ? 1.0 : 0.0});
  const std::string remainder = sums[8] > 0 ? "net" : "shm";
  const TransportTotals cells{comm_.size(), sums[0], sums[1], sums[2], sums[3]};
  const TransportTotals exchange_only{comm_.size(), sums[4], sums[5], sums[6], sums[7]};
  // Few bytes of payload drown in barriers and in the launcher's own traffic.
  const bool by_cells = sums[0] >= sums[4];
  const TransportVerdict verdict = judge_transport(by_cells ? cells : exchange_only, remainder);

  TransportRecord record;
  record.rank = comm_.rank();
  record.transport = verdict.transport;
  record.evidence = fmt::format(
      "{}: {}", by_cells ? "cells of all ranks" : "1 MiB exchanges of all ranks", verdict.evidence);
  record.payload_bytes = payload_bytes_;
  record.tcp_bytes = traffic_.tcp_bytes;
  record.cma_bytes = traffic_.cma_bytes;
  record.cma_errors = traffic_.cma_errors;
  auto exchanged = to_json(probe);
  exchanged["payload_bytes"] = static_cast<std::uint64_t>(probed);
  exchanged["transport"] = judge_transport(exchange_only, remainder).transport;
  record.details = {{"cells", cells_}, {"exchange", exchanged}};
  return record;
}

/// Where the library names its connections itself, host messages prove nothing of them; the bytes
/// over this process's sockets stay as a second witness.
TransportRecord TransportProof::record_claim(TransportClaim claim) const {
  TransportRecord record;
  record.rank = comm_.rank();
  record.transport = claim.transport;
  record.payload_bytes = payload_bytes_;
  record.tcp_bytes = traffic_.tcp_bytes;
  record.cma_bytes = traffic_.cma_bytes;
  record.cma_errors = traffic_.cma_errors;
  record.evidence = fmt::format("{}; over this rank's TCP sockets went {} for {} of payload",
                                claim.evidence, amount(static_cast<double>(traffic_.tcp_bytes)),
                                amount(static_cast<double>(payload_bytes_)));
  record.details = {{"cells", cells_}, {"library", claim.details}};
  return record;
}

TransportVerdict judge_transport(const TransportTotals& totals, const std::string& remainder) {
  if (totals.ranks <= 1) return {"self", "one rank, nothing leaves the process"};
  const double rest = std::max(0.0, totals.payload_bytes - totals.tcp_bytes - totals.cma_bytes);
  const double all = rest + totals.tcp_bytes + totals.cma_bytes;
  std::string evidence = fmt::format(
      "of {} payload {} went over TCP sockets (TCP_INFO), {} by process_vm_readv and "
      "process_vm_writev, the rest by {}",
      amount(totals.payload_bytes), amount(totals.tcp_bytes), amount(totals.cma_bytes),
      remainder == "net" ? "a network device that is held open" : "shared memory");
  if (totals.cma_errors > 0)
    evidence += fmt::format("; {} such calls were refused", totals.cma_errors);
  if (totals.tcp_bytes >= 0.9 * all) return {"tcp", evidence};
  if (totals.cma_bytes >= 0.9 * all) return {"cma", evidence};
  if (rest >= 0.9 * all) return {remainder, evidence};
  return {"mixed", evidence};
}

std::string remaining_transport() {
  bool net = false;
  for_each_descriptor([&](int /*descriptor*/, std::string_view target) {
    net = net || target.starts_with("/dev/infiniband/uverbs");
  });
  return net ? "net" : "shm";
}

}  // namespace dynamiccl
