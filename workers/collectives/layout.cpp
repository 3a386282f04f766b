#include "workers/collectives/layout.hpp"

#include <fmt/format.h>

#include <climits>

namespace dynamiccl {
namespace {

/// One rank's input, from element `first` on.
ExpectedPart from_one(int rank, std::size_t offset, std::size_t count, std::uint64_t first) {
  return {offset, count, first, rank, rank, -1};
}
/// The sum of all ranks' inputs, from element `first` on.
ExpectedPart from_all(const Place& place, std::size_t count, std::uint64_t first) {
  return {0, count, first, 0, place.ranks - 1, -1};
}
/// The sum of the workers' inputs, without the server's.
ExpectedPart from_workers(const Place& place, std::size_t count) {
  return {0, count, 0, 0, place.ranks - 1, place.server_rank};
}

bool counts_all_parts(Collective collective) {
  return collective == Collective::allgather || collective == Collective::reduce_scatter ||
         collective == Collective::gather || collective == Collective::alltoall;
}

std::uint64_t parts_of(Collective collective, int ranks) {
  if (collective == Collective::alltoallv) return shares_of_alltoallv(ranks);
  return counts_all_parts(collective) ? static_cast<std::uint64_t>(ranks) : 1;
}

bool needs_two_ranks(Collective collective) {
  return collective == Collective::sendrecv || collective == Collective::push ||
         collective == Collective::pull || collective == Collective::push_pull;
}

std::string why_unsupported(const WorkCell& cell, const Place& place) {
  if (!belongs_to(cell.collective, place.architecture)) {
    return fmt::format("{} does not belong to the {} architecture", name_of(cell.collective),
                       name_of(place.architecture));
  }
  if (place.ranks < 2 && needs_two_ranks(cell.collective))
    return fmt::format("{} needs at least 2 ranks", name_of(cell.collective));
  if (auto misfit = work_settings_misfit(cell, place.architecture, place.ranks, false);
      !misfit.empty())
    return misfit;
  const std::uint64_t width = element_bytes(cell.datatype);
  const std::uint64_t parts = parts_of(cell.collective, place.ranks);
  if (cell.size.count() < width * parts) {
    return fmt::format("{} is less than one {} for each of {} parts ({} B)",
                       format_bytes(cell.size), name_of(cell.datatype), parts, width * parts);
  }
  if (cell.collective == Collective::alltoallv) {
    if (cell.in_place)
      return "alltoallv has no in-place form: what comes in differs from what goes out";
    if (cell.size.count() / width > INT_MAX)
      return fmt::format("alltoallv counts elements with an int: at most {}", INT_MAX);
  }
  if (DataSource(0, cell.datatype, place.ranks).range() < 2) {
    return fmt::format("sums over {} ranks are not exact in {}, so they could not be verified",
                       place.ranks, name_of(cell.datatype));
  }
  return {};
}

void lay_out_sums(Layout& layout, const WorkCell& cell, const Place& place, std::size_t elements) {
  const bool at_root = place.rank == layout.root;
  layout.count = layout.in_elements = elements;
  layout.last_receiver = place.ranks - 1;
  if (cell.collective == Collective::reduce) {
    layout.rooted = true;
    layout.last_receiver = layout.root;
  }
  if (cell.collective == Collective::reduce_scatter) {
    layout.count = layout.out_elements = elements / static_cast<std::size_t>(place.ranks);
    layout.in_elements = layout.count * static_cast<std::size_t>(place.ranks);
    layout.in_place_offset = layout.count * static_cast<std::size_t>(place.rank);
    layout.out_inside_in = true;
    layout.expected = {from_all(place, layout.count, layout.in_place_offset)};
  } else if (cell.collective == Collective::allreduce || at_root) {
    layout.out_elements = elements;
    layout.expected = {from_all(place, elements, 0)};
  }
}

void lay_out_parts(Layout& layout, const WorkCell& cell, const Place& place, std::size_t elements) {
  const auto ranks = static_cast<std::size_t>(place.ranks);
  const bool all_to_all = cell.collective == Collective::alltoall;
  layout.count = elements / ranks;
  layout.in_elements = all_to_all ? layout.count * ranks : layout.count;
  layout.last_receiver = place.ranks - 1;
  if (cell.collective == Collective::gather) {
    layout.rooted = true;
    layout.last_receiver = layout.root;
    if (place.rank != layout.root) return;
  }
  layout.out_elements = layout.count * ranks;
  const std::size_t own = layout.count * static_cast<std::size_t>(place.rank);
  if (!all_to_all) layout.in_place_offset = own;
  for (int r = 0; r < place.ranks; ++r) {
    const std::size_t offset = layout.count * static_cast<std::size_t>(r);
    layout.expected.push_back(from_one(r, offset, layout.count, all_to_all ? own : 0));
  }
}

void lay_out_pairs(Layout& layout, const Place& place, std::size_t elements) {
  layout.count = layout.in_elements = layout.out_elements = elements;
  layout.last_receiver = place.ranks - 1;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  for (int peer = 0; peer < place.ranks; ++peer) {
    const int to = (peer - place.rank + place.ranks) % place.ranks;
    const int from = (place.rank - peer + place.ranks) % place.ranks;
    const std::uint64_t out = share_of_distance(elements, place.ranks, to);
    const std::uint64_t in = share_of_distance(elements, place.ranks, from);
    // Where the peer keeps what it sends to this rank: after its parts for the ranks before.
    std::uint64_t first = 0;
    for (int before = 0; before < place.rank; ++before)
      first +=
          share_of_distance(elements, place.ranks, (before - peer + place.ranks) % place.ranks);
    layout.expected.push_back(from_one(peer, received, in, first));
    layout.pairs.send.push_back(static_cast<int>(out));
    layout.pairs.send_at.push_back(static_cast<int>(sent));
    layout.pairs.receive.push_back(static_cast<int>(in));
    layout.pairs.receive_at.push_back(static_cast<int>(received));
    sent += out;
    received += in;
  }
}

void lay_out_moves(Layout& layout, const WorkCell& cell, const Place& place, std::size_t elements) {
  const bool at_root = place.rank == layout.root;
  const int left = (place.rank + place.ranks - 1) % place.ranks;
  layout.count = elements;
  layout.last_receiver = place.ranks - 1;
  switch (cell.collective) {
    case Collective::sendrecv:
      layout.in_elements = layout.out_elements = elements;
      layout.expected = {from_one(left, 0, elements, 0)};
      return;
    case Collective::broadcast:
      layout.rooted = layout.one_buffer = true;
      layout.in_elements = at_root ? elements : 0;
      layout.out_elements = elements;
      layout.expected = {from_one(layout.root, 0, elements, 0)};
      break;
    case Collective::pull:
      layout.rooted = true;
      layout.in_elements = at_root ? elements : 0;
      layout.out_elements = at_root ? 0 : elements;
      if (!at_root) layout.expected = {from_one(layout.root, 0, elements, 0)};
      break;
    case Collective::push:
      layout.rooted = true;
      layout.in_elements = at_root ? 0 : elements;
      layout.out_elements = at_root ? elements : 0;
      if (at_root) layout.expected = {from_workers(place, elements)};
      layout.last_receiver = layout.root;
      return;
    default:  // push_pull
      layout.in_elements = at_root ? 0 : elements;
      layout.out_elements = elements;
      layout.expected = {from_workers(place, elements)};
      return;
  }
  // Sent from the root: the last receiver is the highest other rank.
  if (layout.root == place.ranks - 1 && place.ranks > 1) layout.last_receiver = place.ranks - 2;
}

std::uint64_t payload_of(const Layout& layout, const WorkCell& cell, const Place& place) {
  const auto ranks = static_cast<std::uint64_t>(place.ranks);
  const std::uint64_t others = ranks - 1;
  const std::uint64_t size = layout.used_bytes;
  const bool at_root = place.rank == layout.root;
  switch (cell.collective) {
    case Collective::allreduce:
      return 2 * size * others / ranks;
    case Collective::allgather:
    case Collective::reduce_scatter:
    case Collective::alltoall:
      return size * others / ranks;
    case Collective::alltoallv:
      return size - share_of_distance(layout.count, place.ranks, 0) * element_bytes(cell.datatype);
    case Collective::gather:
      return at_root ? 0 : size / ranks;
    case Collective::sendrecv:
      return ranks > 1 ? size : 0;
    case Collective::push_pull:
      return at_root ? 0 : 2 * size;
    default:
      return at_root ? 0 : size;
  }
}

}  // namespace

Layout layout_of(const WorkCell& cell, const Place& place) {
  Layout layout;
  layout.unsupported = why_unsupported(cell, place);
  if (!layout.unsupported.empty()) return layout;
  layout.root = place.architecture == Architecture::ps ? place.server_rank
                                                       : work_settings_of(cell.knobs).root;
  const std::size_t width = element_bytes(cell.datatype);
  const std::size_t elements = cell.size.count() / width;
  switch (cell.collective) {
    case Collective::allreduce:
    case Collective::reduce:
    case Collective::reduce_scatter:
      lay_out_sums(layout, cell, place, elements);
      break;
    case Collective::allgather:
    case Collective::gather:
    case Collective::alltoall:
      lay_out_parts(layout, cell, place, elements);
      break;
    case Collective::alltoallv:
      lay_out_pairs(layout, place, elements);
      break;
    default:
      lay_out_moves(layout, cell, place, elements);
  }
  layout.used_bytes = counts_all_parts(cell.collective)
                          ? layout.count * static_cast<std::size_t>(place.ranks) * width
                          : elements * width;
  layout.payload_bytes = payload_of(layout, cell, place);
  return layout;
}

}  // namespace dynamiccl
