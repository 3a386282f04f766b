#include "workers/collectives/two_level.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/file_text.hpp"
#include "workers/collectives/ring.hpp"
#include "workers/collectives/sum.hpp"
#include "workers/group_messages.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

/// Who sums what: a part of the vector for each owner of a node.
struct Levels {
  std::vector<int> node;     ///< ranks of this rank's node, the owners first
  std::vector<int> peers;    ///< owners of this rank's part, one per node; empty: it owns none
  std::size_t parts = 1;     ///< owners of each node
  std::size_t position = 0;  ///< of this rank in `node`
  std::size_t nodes = 1;
};

Levels levels_of(std::span<const int> nodes, int rank) {
  std::map<int, std::vector<int>> members;
  for (std::size_t r = 0; r < nodes.size(); ++r) members[nodes[r]].push_back(static_cast<int>(r));
  Levels levels;
  levels.node = members.at(nodes[static_cast<std::size_t>(rank)]);
  levels.parts = nodes.size();
  levels.nodes = members.size();
  for (const auto& [number, ranks] : members) levels.parts = std::min(levels.parts, ranks.size());
  levels.position = static_cast<std::size_t>(
      std::find(levels.node.begin(), levels.node.end(), rank) - levels.node.begin());
  if (levels.position < levels.parts)
    for (const auto& [number, ranks] : members) levels.peers.push_back(ranks[levels.position]);
  return levels;
}

/// The inputs of this node's other ranks for the part `own`, added to this rank's in `call.out`,
/// and this rank's parts sent to their owners. Two messages are under way to an owner.
void sum_inside(const Call& call, const Levels& levels) {
  const std::size_t width = element_bytes(call.type);
  std::vector<Request> sends;
  for (std::size_t i = 0; i < levels.parts; ++i) {
    const Cut part = cut_of(call.layout.count, levels.parts, i);
    if (i != levels.position && part.count > 0)
      sends.push_back(call.comm.isend(call.in + part.begin * width, part.count * width,
                                      levels.node[i], kLevelTag));
  }
  const Cut own =
      levels.peers.empty() ? Cut{0, 0} : cut_of(call.layout.count, levels.parts, levels.position);
  if (own.count > 0) {
    std::vector<int> others = levels.node;
    std::erase(others, call.comm.rank());
    const std::byte* sum = call.in + own.begin * width;
    std::byte* out = call.out + own.begin * width;
    if (others.empty() && out != sum) std::memcpy(out, sum, own.count * width);
    Request slots[2];
    const auto receive = [&](std::size_t i) {
      slots[i % 2] = call.comm.irecv(call.scratch + i % 2 * own.count * width, own.count * width,
                                     others[i], kLevelTag);
    };
    for (std::size_t i = 0; i < std::min<std::size_t>(2, others.size()); ++i) receive(i);
    for (std::size_t i = 0; i < others.size(); ++i) {
      call.comm.wait(slots[i % 2]);
      sum_elements(out, sum, call.scratch + i % 2 * own.count * width, own.count, call.type);
      sum = out;
      if (i + 2 < others.size()) receive(i + 2);
    }
  }
  for (const Request request : sends) call.comm.wait(request);
}

/// Every owner's sum to all ranks of its node.
void share_inside(const Call& call, const Levels& levels) {
  const std::size_t width = element_bytes(call.type);
  std::vector<Request> requests;
  for (std::size_t i = 0; i < levels.parts; ++i) {
    const Cut part = cut_of(call.layout.count, levels.parts, i);
    std::byte* at = call.out + part.begin * width;
    if (part.count == 0) continue;
    if (i != levels.position) {
      requests.push_back(call.comm.irecv(at, part.count * width, levels.node[i], kLevelTag));
      continue;
    }
    for (const int rank : levels.node)
      if (rank != call.comm.rank())
        requests.push_back(call.comm.isend(at, part.count * width, rank, kLevelTag));
  }
  for (const Request request : requests) call.comm.wait(request);
}

}  // namespace

std::vector<int> nodes_of_ranks(Messages& comm) {
  const auto boot = read_file("/proc/sys/kernel/random/boot_id");
  struct stat network {};
  stat("/proc/self/ns/net", &network);
  const std::string name = stable_id(boot.value_or("") + "|" + std::to_string(network.st_ino));
  // 48 bits, which a double holds.
  std::vector<double> names(static_cast<std::size_t>(comm.size()), 0);
  names[static_cast<std::size_t>(comm.rank())] =
      static_cast<double>(std::stoull(name.substr(0, 12), nullptr, 16));
  std::vector<int> nodes;
  std::vector<double> seen;
  for (const double of_rank : sum_over_ranks(comm, std::move(names))) {
    const auto found = std::find(seen.begin(), seen.end(), of_rank);
    nodes.push_back(static_cast<int>(found - seen.begin()));
    if (found == seen.end()) seen.push_back(of_rank);
  }
  return nodes;
}

void run_two_level_allreduce(const Call& call, PhaseTimes& /*times*/) {
  DYN_ASSERT(call.nodes.size() == static_cast<std::size_t>(call.comm.size()),
             "each rank has a node");
  const Levels levels = levels_of(call.nodes, call.comm.rank());
  sum_inside(call, levels);
  if (levels.peers.size() > 1) {
    const Cut own = cut_of(call.layout.count, levels.parts, levels.position);
    std::byte* sum = call.out + own.begin * element_bytes(call.type);
    GroupMessages across(call.comm, levels.peers);
    ring_allreduce(across, {sum, sum, call.scratch, own.count, call.type, call.pipelining});
  }
  share_inside(call, levels);
}

std::size_t two_level_scratch(const Layout& layout, const Place& place, DataType type,
                              const Pipelining& pipelining) {
  if (place.nodes.empty()) return 0;
  const Levels levels = levels_of(place.nodes, place.rank);
  const std::size_t part = cut_of(layout.count, levels.parts, 0).count;
  return std::max(2 * part * element_bytes(type),
                  ring_allreduce_scratch(part, static_cast<int>(levels.nodes), type, pipelining));
}

}  // namespace dynamiccl
